import bz2
import gzip
import io
import lzma
import tarfile
from pathlib import Path

import pytest

from dna_suite.data import tar_members
from dna_suite.data.tar_members import list_members
from dna_suite.errors import DnaError

CONTENT = {"b/two.jpg": b"22" * 700, "./a/one.jpg": b"1", "c.jpg": b"", "d/e/f.jpg": b"x" * 512}


def write_tar(path: Path, content: dict[str, bytes], form: int = tarfile.GNU_FORMAT, **changes) -> Path:
    with tarfile.open(path, "w", format=form) as archive:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            for key, value in changes.items():
                setattr(entry, key, value)
            archive.addfile(entry, io.BytesIO(data))
    return path


def contents(path: Path) -> dict[str, bytes]:
    whole = path.read_bytes()
    return {member.name: whole[member.offset : member.offset + member.size] for member in list_members(path)}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_offsets_lead_to_the_bytes(tmp_path, form, monkeypatch):
    monkeypatch.setattr(tar_members, "walk_with_tarfile", None)  # short names need no second reader
    path = write_tar(tmp_path / "x.tar", CONTENT, form)
    assert contents(path) == {name.removeprefix("./"): data for name, data in CONTENT.items()}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names(tmp_path, form):
    # USTAR splits at a slash, GNU and pax put the name into a member of its own; short names before and after it count once.
    content = {"a/1.jpg": b"1", f"{'k' * 90}/{'n' * 90}.jpg": b"long", "z/2.jpg": b"2"}
    assert contents(write_tar(tmp_path / "x.tar", content, form)) == content


def test_names_that_are_no_ascii(tmp_path):
    content = {"ö/日本.jpg": b"1"}
    assert contents(write_tar(tmp_path / "gnu.tar", content)) == content
    assert contents(write_tar(tmp_path / "pax.tar", content, tarfile.PAX_FORMAT)) == content


def test_folders_are_left_out(tmp_path):
    (tmp_path / "t" / "a").mkdir(parents=True)
    (tmp_path / "t" / "a" / "1.jpg").write_bytes(b"1")
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(tmp_path / "t", "t")
    assert contents(tmp_path / "x.tar") == {"t/a/1.jpg": b"1"}


def test_a_size_in_base_256(tmp_path):
    # Written for members above 8 GiB; the value here is small, its form is the large one.
    path = write_tar(tmp_path / "x.tar", {"a.jpg": b"12345"})
    data = bytearray(path.read_bytes())
    data[124:136] = b"\x80" + (5).to_bytes(11, "big")
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    assert contents(path) == {"a.jpg": b"12345"}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("long", [False, True])
def test_every_cut_is_told(tmp_path, form, long):
    content = {**CONTENT, **({f"{'k' * 90}/{'n' * 90}.jpg": b"long"} if long else {})}
    path = write_tar(tmp_path / "x.tar", content, form)
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0"))
    for keep in range(0, end, 256):
        path.write_bytes(whole[:keep])
        with pytest.raises(DnaError, match=f"^{path}: ") as caught:
            list_members(path)
        assert "\n" not in str(caught.value)


def test_a_cut_between_two_members_is_told(tmp_path):
    # Each header is whole and each member is whole: only the end mark is missing.
    path = write_tar(tmp_path / "x.tar", {"a.jpg": b"1" * 512, "b.jpg": b"2" * 512})
    path.write_bytes(path.read_bytes()[:1024])
    with pytest.raises(DnaError, match="cut short: no end mark after 1024 bytes"):
        list_members(path)


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "gzip"), (bz2.compress, "bzip2"), (lzma.compress, "xz")])
def test_compressed_archives_are_named(tmp_path, pack, name):
    path = write_tar(tmp_path / "x.tar", CONTENT)
    path.write_bytes(pack(path.read_bytes()))
    with pytest.raises(DnaError, match=rf"x\.tar: compressed \({name}\)"):
        list_members(path)


@pytest.mark.parametrize("name", ["/etc/a.jpg", "../a.jpg", "a/../../b.jpg"])
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_that_lead_out(tmp_path, name, form):
    path = write_tar(tmp_path / "x.tar", {"ok.jpg": b"", name: b"1"}, form)
    with pytest.raises(DnaError, match=rf"x\.tar: member '{name}' leads out of the archive's folder"):
        list_members(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
@pytest.mark.parametrize("long", [False, True])
def test_links_and_devices(tmp_path, kind, long):
    path = write_tar(tmp_path / "x.tar", {("n" * 120 if long else "n") + ".jpg": b""}, type=kind, linkname="other.jpg")
    with pytest.raises(DnaError, match="is a link or a special file"):
        list_members(path)


def test_a_flipped_bit_in_a_header(tmp_path):
    path = write_tar(tmp_path / "x.tar", CONTENT)
    data = bytearray(path.read_bytes())
    data[5 * 512] ^= 1  # the second header: the first member takes a header and three blocks
    data[4 * 512] ^= 1
    path.write_bytes(data)
    with pytest.raises(DnaError, match="damaged at byte 2048"):
        list_members(path)


def test_no_archive_at_all(tmp_path):
    path = tmp_path / "x.tar"
    path.write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(DnaError, match=r"x\.tar: not a tar archive"):
        list_members(path)
    with pytest.raises(DnaError, match=r"y\.tar: No such file"):
        list_members(tmp_path / "y.tar")


def test_joined_archives_are_told(tmp_path):
    # `cat` leaves an end mark in the middle, behind which most readers see nothing.
    path = write_tar(tmp_path / "x.tar", CONTENT)
    end = path.read_bytes().rstrip(b"\0")
    path.write_bytes(end + bytes(-len(end) % 512 + 1024) + path.read_bytes())
    with pytest.raises(DnaError, match="something stands behind its end mark"):
        list_members(path)
