"""`dna init`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dna_suite.cli.main import main
from dna_suite.cli.shipped import FOLDERS, shipped_files, shipped_root


def test_copies_every_shipped_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "mine")]) == 0
    shipped = [path.relative_to(shipped_root()) for folder in FOLDERS for path in shipped_files(folder)]
    copied = {path.relative_to(tmp_path / "mine") for path in (tmp_path / "mine").rglob("*.yaml")}
    assert copied == set(shipped)
    assert all((tmp_path / "mine" / path).read_bytes() == (shipped_root() / path).read_bytes() for path in shipped)
    assert f"{len(shipped)} files" in capsys.readouterr().out


def test_a_file_that_is_there_stops_it_before_anything_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "configs/smoke.yaml"
    mine.parent.mkdir()
    mine.write_text("mine: true\n")
    assert main(["init", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"dna: {mine} exists; nothing was copied\n"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine: true\n"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err
