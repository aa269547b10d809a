"""`dna list`."""

from __future__ import annotations

import pytest

from dna_suite.catalogue import BACKBONES, DATASETS, METRICS, OPERATORS, TASKS
from dna_suite.cli.list import LISTS
from dna_suite.cli.main import main
from dna_suite.cli.shipped import FOLDERS, shipped_files


def test_everything_is_listed_within_the_width(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = {line.split()[0] for line in lines if line.startswith("  ")}
    shipped = {f"{folder}/{path.name}" for folder in FOLDERS for path in shipped_files(folder)}
    sets = {name for group in DATASETS.values() for name in group}
    assert {*OPERATORS, *BACKBONES, *TASKS, *METRICS, *sets, *shipped} <= names
    assert {line.rstrip(":") for line in lines if line.endswith(":") and not line.startswith(" ")} == set(LISTS)
    assert max(len(line) for line in lines) <= 100


def test_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "attention"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "attention:"
    assert [line.split()[0] for line in lines[1:]] == list(OPERATORS)
    assert "alpha=0.5" in next(line for line in lines if line.split()[0] == "dna")


def test_every_recipe_says_what_it_is() -> None:
    assert {name for name, comment in LISTS["recipes"]() if not comment} == set()


def test_a_wrong_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "attentions"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "did you mean 'attention'?" in error
