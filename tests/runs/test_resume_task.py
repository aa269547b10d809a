"""The published recipe on toy JPEGs, stopped and resumed through the command line: workers, mixing, erasing, repeats, average."""

from __future__ import annotations

import csv
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_loop import same, saved_state

from dna_suite.cli.main import main
from dna_suite.tasks.classification import ImageClassification

RUN = Path("runs/imagenet_vit/dna/seed0")
WORDS = [
    "--config=tasks/imagenet_vit.yaml", "--config=configs/smoke.yaml", "--config=configs/deterministic.yaml", "--runs=runs",
    "--model.attention.name=dna", "--model.ema=0.7", "--data.size=64", "--data.batch=4", "--trainer.max_epochs=2",
    "--trainer.limit_train_batches=5", "--trainer.limit_val_batches=2", "--trainer.accumulate_grad_batches=2",
]  # fmt: skip
Trace = list[tuple[Any, ...]]


def train(home: Path, stops: dict[int, int], workers: list[int], monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Train with TERM in the steps of `stops` (step -> micro-batch of the epoch); each part has its own number of workers."""
    home.mkdir()
    monkeypatch.chdir(home)
    trace: Trace = []
    step = ImageClassification.training_step

    def traced(self: Any, batch: dict[str, Any], batch_idx: int) -> torch.Tensor:
        if stops.get(self.trainer.global_step + 1) == batch_idx:
            os.kill(os.getpid(), signal.SIGTERM)
        loss = step(self, batch, batch_idx)
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        trace.append((batch["index"].tolist(), int(batch["image"].sum()), loss.item(), rate))
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(ImageClassification, "training_step", traced)
        for part, number in enumerate(workers):
            source = [f"--resume={RUN}"] if part else WORDS
            code = main(["fit", *source, f"--data.workers={number}"])
            assert code == (143 if part < len(workers) - 1 else 0)
    return trace


def validations() -> list[tuple[str, str]]:
    with open(RUN / "metrics.csv") as file:
        return [(row["step"], row["val/loss"]) for row in csv.DictReader(file) if row["val/loss"]]


def test_the_published_recipe_resumes_bit_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(tmp_path / "whole", {}, [0], monkeypatch)
    expected, validated = saved_state(RUN / "checkpoints"), validations()
    # Five micro-batches in windows of 2, 2 and 1: three steps in each epoch.
    assert len(whole) == 10
    assert expected["global_step"] == 6
    # In the last window of the first epoch and in the second window of the second.
    resumed = train(tmp_path / "stopped", {3: 4, 5: 2}, [2, 0, 1], monkeypatch)
    assert resumed == whole
    assert validations() == validated
    assert len(validated) == 2
    assert same(saved_state(RUN / "checkpoints"), expected)
    assert not same(expected["state_dict"], expected["current_model_state"])
