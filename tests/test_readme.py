"""The README's examples run as they stand, in an empty folder, and its results table is current."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import dna_suite
from dna_suite.cli.main import COMMANDS, main

ROOT = Path(dna_suite.__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language that are marked as examples."""
    return re.findall(rf"^```{language} example\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_the_two_commands_come_first_and_exist() -> None:
    first, second = re.findall(r"^    make (\w+)$", README, flags=re.MULTILINE)
    assert (first, second) == ("demo", "test")
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {*re.findall(r"`make ([\w-]+)`", README), first, second} <= set(targets)


def test_every_command_that_is_named_exists() -> None:
    named = {words.split()[0] for words in re.findall(r"`dna ([a-z][\w ]*)", README)}
    assert named <= COMMANDS.keys()


def test_examples_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = blocks("sh")
    assert len(shell) == 8
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DNA_DATA", raising=False)
    for line in "".join(shell).splitlines():
        program, *words = shlex.split(line)
        assert program == "dna"
        assert main(words) == 0, f"{line}\n{capsys.readouterr().err}"
    result = json.loads((tmp_path / "runs/smoke/digits/dna/seed0/result.json").read_text())
    assert {"val/top1", "test/top1"} <= result["metrics"].keys()
    assert result["toy"] is True
    assert (tmp_path / "runs.csv").is_file()
    predictions = (tmp_path / "predictions/predictions.jsonl").read_text().splitlines()
    assert len(predictions) == sum(path.is_file() for path in (tmp_path / "pictures/val").rglob("*"))
    namespace: dict[str, object] = {}
    (python,) = blocks("python")
    exec(python, namespace)
    model = namespace["model"]
    assert not model.training  # type: ignore[attr-defined]
    assert len(model.classes) == 10  # type: ignore[attr-defined]


def test_results_table_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["tables", "--check"]) == 0
