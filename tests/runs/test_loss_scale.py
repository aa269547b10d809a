"""Steps that float16's loss scaler leaves out: counted, shown, stored, and an end to them."""

import csv
import math

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from toy_loop import ToyData, ToyTask, make_trainer

from dna_suite.errors import DnaError
from dna_suite.runs.checkpoint_files import newest_checkpoint
from dna_suite.runs.checkpoint_io import AtomicCheckpointIO
from dna_suite.runs.checkpoints import RunCheckpoints
from dna_suite.runs.metrics_csv import MetricsCsv
from dna_suite.runs.train_log import TrainLog


class Overflowing(ToyTask):
    """Gives infinite gradients and a finite loss at some optimiser steps."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def on_after_backward(self):
        if self.trainer.global_step + 1 in self.at:
            self.net[0].weight.grad[0, 0] = math.inf


def fit(folder, at, log, resume=None, scale=1024.0, **options):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    plugins = [AtomicCheckpointIO(), MixedPrecision("16-mixed", "cpu", scaler)]
    trainer = make_trainer(folder, log, RunCheckpoints(folder), plugins=plugins, **options)
    trainer.fit(Overflowing(at), ToyData(), ckpt_path=resume, weights_only=True)
    return scaler


def rows_of(path):
    with open(path) as file:
        return {int(row["step"]): row for row in csv.DictReader(file)}


def test_skipped_steps_are_counted_and_written(tmp_path):
    log, logger = TrainLog(), MetricsCsv(tmp_path / "metrics.csv")
    scaler = fit(tmp_path, {2, 5, 6}, log, logger=logger, log_every_n_steps=2)
    assert log.skipped.count == 3
    assert scaler.get_scale() == 1024 / 8
    assert log.latest["train/skipped_steps"] == 3
    counts = {step: row["train/skipped_steps"] for step, row in rows_of(tmp_path / "metrics.csv").items()}
    assert [counts[step] for step in (2, 4, 6, 8, 12)] == ["1", "1", "3", "3", "3"]


def test_a_resumed_run_goes_on_counting(tmp_path):
    fit(tmp_path, {2, 3}, TrainLog(), max_epochs=1)
    log = TrainLog()
    fit(tmp_path, {7}, log, resume=newest_checkpoint(tmp_path))
    assert log.skipped.count == 3


def test_gradients_that_stay_infinite_end_the_run(tmp_path):
    log = TrainLog()
    message = (
        r"gradients are not finite: the loss scale of 16-mixed fell to 6\.\de-05 after 4 skipped steps, at epoch 1, step 8, "
        rf"learning rate 1\.250e-03; last good checkpoint: {tmp_path}/step00000004\.ckpt; trainer\.precision bf16-mixed"
    )
    with pytest.raises(DnaError, match=message):
        fit(tmp_path, {5, 6, 7, 8}, log, scale=1e-3)
    weights = torch.load(newest_checkpoint(tmp_path), weights_only=True)["state_dict"]
    assert all(torch.isfinite(weight).all() for weight in weights.values())


def test_without_a_scaler_nothing_is_counted(tmp_path):
    log, logger = TrainLog(), MetricsCsv(tmp_path / "metrics.csv")
    trainer = make_trainer(tmp_path, log, RunCheckpoints(tmp_path), logger=logger, max_epochs=1)
    trainer.fit(ToyTask(), ToyData())
    assert log.skipped is None
    assert "train/skipped_steps" not in (tmp_path / "metrics.csv").read_text()
