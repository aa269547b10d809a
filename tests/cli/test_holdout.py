"""A run on a set without a val of its own: what is held out, and what happens where nothing is."""

import json
from pathlib import Path

import pytest

from dna_suite.cli.main import main

SMOKE = ["--config=tasks/fashion_mnist.yaml", "--config=configs/smoke.yaml", "--trainer.max_epochs=1"]


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_result_says_what_val_and_test_were(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *SMOKE, "--data.holdout=50", "--seed=3"]) == 0
    run = Path("runs/smoke/fashion_mnist/softmax/seed3")
    record = json.loads((run / "result.json").read_text())["data"]
    assert (record["val_from"], record["test_from"]) == ("train (holdout 50, seed 3)", "test")
    assert record["counts"] == {"train": 150, "val": 50, "test": 50}
    assert main(["fit", f"--resume={run}", "--data.holdout=40", *SMOKE]) == 2
    assert "data.holdout: checkpoint 50, config 40" in capsys.readouterr().err


def test_without_a_holdout_the_last_checkpoint_is_tested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *SMOKE, "--data.holdout=null"]) == 0
    run = Path("runs/smoke/fashion_mnist/softmax/seed0")
    told = capsys.readouterr()
    assert "nothing is held out of train" in told.out + told.err
    assert "no validation was run" in told.out
    assert main(["test", f"--run={run}"]) == 0
    record = json.loads((run / "result.json").read_text())
    assert {name.partition("/")[0] for name in record["metrics"]} == {"test"}
    assert record["data"]["counts"] == {"train": 200, "test": 50}
    assert record["data"]["val_from"] is None
    assert main(["validate", f"--run={run}"]) == 2
    assert "no val part of its own: data.holdout takes one from train" in capsys.readouterr().err
