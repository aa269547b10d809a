import os

import numpy as np
import pytest

from dna_suite.data import shard_index
from dna_suite.data.folders import walk_pictures
from dna_suite.data.shard_index import FILE, Index, read_index
from dna_suite.errors import DnaError

from .test_tar_members import write_tar


def names(folder) -> list[str]:
    return list(read_index(folder)[0].names)


def count_builds(monkeypatch) -> list[int]:
    built: list[int] = []
    build = shard_index.build
    monkeypatch.setattr(shard_index, "build", lambda *given: built.append(1) or build(*given))
    return built


def same(one: Index, other: Index) -> bool:
    columns = all(np.array_equal(getattr(one, key), getattr(other, key)) for key in shard_index.COLUMNS)
    return columns and list(one.names) == list(other.names) and list(one.shards) == list(other.shards)


def test_order_is_that_of_a_walk_through_the_folder(tmp_path):
    inside = ["b/x/1.jpg", "b/z.jpg", "b/a.jpg", "b/x/y/0.jpg", "a/9.jpg", "a/10.jpg", "b.c/1.jpg", "B/1.jpg"]
    for name in inside:
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_bytes(b"1")
    (tmp_path / "shards").mkdir()
    write_tar(tmp_path / "shards" / "0.tar", {name: b"1" for name in inside[::2]})
    write_tar(tmp_path / "shards" / "1.tar", {name: b"1" for name in inside[1::2]})
    walked = [path for paths, _ in walk_pictures(tmp_path / "files") for path in paths]
    assert names(tmp_path / "shards") == walked
    assert len(walked) == len(inside)


def test_what_a_listing_ignores_is_ignored(tmp_path):
    content = {"a/1.jpg": b"1", "a/._1.jpg": b"", "__MACOSX/a/1.jpg": b"", "a/readme.txt": b"", ".hidden/2.jpg": b""}
    write_tar(tmp_path / "0.tar", content)
    index, _ = read_index(tmp_path)
    assert (list(index.names), index.ignored) == (["a/1.jpg"], 4)


def test_the_table_is_made_once_and_anew_for_a_changed_shard(tmp_path, monkeypatch):
    built = count_builds(monkeypatch)
    path = write_tar(tmp_path / "0.tar", {"a/1.jpg": b"1"})
    first, place = read_index(tmp_path)
    assert place == str(tmp_path / FILE)
    assert same(first, read_index(tmp_path)[0])
    assert len(built) == 1
    times = path.stat()
    write_tar(path, {"a/2.jpg": b"1"})  # as large as before
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    assert names(tmp_path) == ["a/2.jpg"]
    write_tar(tmp_path / "1.tar", {"a/3.jpg": b"1"})
    assert names(tmp_path) == ["a/2.jpg", "a/3.jpg"]
    assert len(built) == 3
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == [FILE, "0.tar", "1.tar"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a table", b"\x80\x04."])
def test_a_damaged_table_is_made_anew(tmp_path, content):
    write_tar(tmp_path / "0.tar", {"a/1.jpg": b"1"})
    (tmp_path / FILE).write_bytes(content)
    assert names(tmp_path) == ["a/1.jpg"]
    assert shard_index.load(tmp_path / FILE) is not None


def test_where_nothing_can_be_written_the_cache_folder_takes_it(tmp_path, monkeypatch):
    folder = tmp_path / "shards"
    folder.mkdir()
    write_tar(folder / "0.tar", {"a/1.jpg": b"1"})
    store = shard_index.store

    def refuse(index, place):
        if place.parent in refused:
            raise PermissionError(13, "Permission denied")
        store(index, place)

    monkeypatch.setattr(shard_index, "store", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    built = count_builds(monkeypatch)
    refused = {folder}
    _, place = read_index(folder)
    assert place.startswith(str(tmp_path / "cache" / "dna_suite"))
    assert read_index(folder)[1] == place
    assert len(built) == 1
    os.unlink(place)
    refused.add(tmp_path / "cache" / "dna_suite")
    index, place = read_index(folder)
    assert (list(index.names), place) == (["a/1.jpg"], "")


def test_a_name_that_stands_twice(tmp_path):
    write_tar(tmp_path / "0.tar", {"a/1.jpg": b"1", "a/2.jpg": b"1"})
    write_tar(tmp_path / "1.tar", {"a/2.jpg": b"1"})
    with pytest.raises(DnaError, match=r"'a/2.jpg' stands twice \(0.tar, 1.tar\)"):
        read_index(tmp_path)


def test_archives_of_one_class(tmp_path):
    # As ILSVRC2012's training archive unpacks: n01440764.tar holds n01440764_10026.JPEG, and no folder.
    write_tar(tmp_path / "n2.tar", {"n2_1.JPEG": b"1", "n2_0.JPEG": b"1"})
    write_tar(tmp_path / "n1.tar", {"n1_5.JPEG": b"1"})
    assert names(tmp_path) == ["n1/n1_5.JPEG", "n2/n2_0.JPEG", "n2/n2_1.JPEG"]


def test_flat_members_of_other_names_stay_flat(tmp_path):
    write_tar(tmp_path / "val.tar", {"ILSVRC2012_val_2.JPEG": b"1", "ILSVRC2012_val_1.JPEG": b"1"})
    assert names(tmp_path) == ["ILSVRC2012_val_1.JPEG", "ILSVRC2012_val_2.JPEG"]


def test_an_archive_of_archives(tmp_path):
    inner = write_tar(tmp_path / "n1.tar", {"n1_5.JPEG": b"1"})
    write_tar(tmp_path / "ILSVRC2012_img_train.tar", {"n1.tar": inner.read_bytes()})
    inner.unlink()
    with pytest.raises(DnaError, match=r"ILSVRC2012_img_train.tar: an archive of 1 archives: unpack it once"):
        read_index(tmp_path)


@pytest.mark.parametrize("ending", [".tar.gz", ".tgz", ".tar.xz", ".TAR.ZST"])
def test_compressed_archives(tmp_path, ending):
    write_tar(tmp_path / "0.tar", {"a/1.jpg": b"1"})
    (tmp_path / f"1{ending}").write_bytes(b"")
    with pytest.raises(DnaError, match=f"1{ending}: compressed; shards are plain tar archives"):
        read_index(tmp_path)
