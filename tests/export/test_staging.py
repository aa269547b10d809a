"""Files of an export appear together or not at all."""

import shutil
from collections import namedtuple

import pytest

from dna_suite.errors import DnaError
from dna_suite.export.staging import check_free, staged


def test_files_appear_together_at_the_end(tmp_path):
    out = tmp_path / "a" / "b"
    with staged(out, 10) as folder:
        (folder / "one").write_text("1")
        (folder / "two").write_text("2")
        (folder / "two").chmod(0o600)
        assert not out.exists()
    assert sorted(path.name for path in out.iterdir()) == ["one", "two"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (out / "two").stat().st_mode == (out / "one").stat().st_mode


def test_an_error_leaves_nothing_and_keeps_what_was_there(tmp_path):
    (tmp_path / "one").write_text("old")

    def write() -> None:
        with staged(tmp_path, 10) as folder:
            (folder / "one").write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"one": "old"}


def test_what_is_there_is_replaced_only_where_that_was_said(tmp_path):
    (tmp_path / "one").write_text("old")
    with pytest.raises(DnaError, match="one exists: --overwrite replaces it, --out DIR names another folder"):
        check_free(tmp_path, ["none", "one"], overwrite=False)
    check_free(tmp_path, ["one"], overwrite=True)
    with pytest.raises(DnaError, match="one is a file: --out names a folder"):
        check_free(tmp_path / "one", ["x"], overwrite=True)


def test_a_full_disk_and_a_folder_that_cannot_be_written_are_one_line(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(5))
        with pytest.raises(DnaError, match=r"no space left: needs 20\.0 MB, has 0\.0 MB; nothing"), staged(tmp_path, 20_000_000):
            pass
    (tmp_path / "file").write_text("")
    with pytest.raises(DnaError, match="cannot be written"), staged(tmp_path / "file" / "below", 1):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
