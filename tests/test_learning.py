"""Proof that every operator learns: the full digits recipe, tested on its 360 pictures."""

import json
from pathlib import Path

import pytest

from dna_suite.catalogue import OPERATORS
from dna_suite.cli.main import main


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_digits_are_learnt(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config=tasks/digits.yaml", f"--model.attention.name={name}"]) == 0
    run = f"runs/digits/{name}/seed0"
    assert main(["test", f"--run={run}"]) == 0
    entry = json.loads((Path(run) / "result.json").read_text())["metrics"]["test/top1"]
    assert entry["samples"] == 360
    # The recipe promises 97 % for these two. The others: 98 % of 360 pictures has a deviation of 0.74 points, four of them off.
    assert entry["value"] >= (0.97 if name in ("softmax", "dna") else 0.95)
