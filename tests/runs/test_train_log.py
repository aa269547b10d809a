import csv
import math
import re

import pytest
import torch
from lightning.pytorch import Callback
from toy_loop import ToyData, ToyTask, Trace, make_trainer, run

from dna_suite.errors import DnaError
from dna_suite.runs.checkpoint_files import newest_checkpoint, step_files, step_name
from dna_suite.runs.checkpoints import RunCheckpoints
from dna_suite.runs.metrics_csv import MetricsCsv
from dna_suite.runs.train_log import TrainLog


class Breaking(ToyTask):
    """Gives a loss that is no number at one optimiser step."""

    def __init__(self, at, loss=math.nan):
        super().__init__()
        self.at, self.broken = at, loss

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        if self.trainer.global_step == self.at - 1:
            self.train_loss_sum += self.broken
            return loss * self.broken
        return loss


def rows_of(path):
    with open(path) as file:
        return {int(row["step"]): {key: value for key, value in row.items() if value} for row in csv.DictReader(file)}


def timeless(rows):
    """Without the speed, which no two runs share."""
    return {step: {key: row[key] for key in row if key != "train/samples_per_second"} for step, row in rows.items()}


def test_rows_hold_the_mean_over_samples_since_the_row_before(tmp_path):
    trace, logger = Trace(), MetricsCsv(tmp_path / "metrics.csv")
    options = {"logger": logger, "log_every_n_steps": 3, "max_epochs": 2, "enable_checkpointing": False}
    trainer = make_trainer(tmp_path, TrainLog(), trace, **options)
    trainer.fit(ToyTask(), ToyData())
    rows = rows_of(tmp_path / "metrics.csv")
    assert list(rows) == [3, 4, 6, 8]
    counts, losses = [len(step[0]) for step in trace.steps], [step[2] for step in trace.steps]
    # A window of one micro-batch has weight 1, so the trace's loss is the unweighted one.
    for first, last in ((0, 3), (3, 6)):
        total = sum(n * loss for n, loss in zip(counts[first:last], losses[first:last], strict=True))
        # Sums are kept in float32 on the device.
        assert float(rows[last]["train/loss"]) == pytest.approx(total / sum(counts[first:last]), rel=1e-6)
        assert float(rows[last]["train/lr"]) == trace.steps[last - 1][3]
        assert float(rows[last]["train/samples_per_second"]) > 0
    epoch = sum(n * loss for n, loss in zip(counts[4:], losses[4:], strict=True)) / 14
    assert float(rows[8]["train/epoch_loss"]) == pytest.approx(epoch, rel=1e-6)
    assert {key: rows[8][key] for key in ("epoch", "val/samples")} == {"epoch": "1", "val/samples": "7.0"}
    assert float(rows[8]["val/loss"]) == trace.validations[1][1]


def test_a_resumed_run_writes_the_rows_of_one_that_was_never_stopped(tmp_path):
    def rows(folder, stops):
        run(tmp_path / folder, stops, logger=MetricsCsv(tmp_path / folder / "metrics.csv"), log_every_n_steps=3)
        return timeless(rows_of(tmp_path / folder / "metrics.csv"))

    whole, resumed = rows("whole", []), rows("resumed", [5, 8, 10])
    assert list(resumed) == list(whole)
    for step, row in whole.items():
        # A stop reads the device's float32 sums once more, which adds up in another order.
        assert {key: float(value) for key, value in resumed[step].items()} == pytest.approx(
            {key: float(value) for key, value in row.items()}, rel=1e-6
        )


def test_rows_beyond_the_checkpoint_are_made_again_not_doubled(tmp_path):
    file = tmp_path / "metrics.csv"
    run(tmp_path, logger=MetricsCsv(file))
    whole = timeless(rows_of(file))
    (tmp_path / "checkpoints" / step_name(12)).unlink()
    run(tmp_path, logger=MetricsCsv(file))
    assert timeless(rows_of(file)) == whole


@pytest.mark.parametrize("loss", [math.nan, math.inf])
@pytest.mark.parametrize("every", [1, 5, 50])
def test_a_loss_that_is_no_number_stops_the_run_and_says_where(tmp_path, loss, every):
    trainer = make_trainer(tmp_path, TrainLog(), RunCheckpoints(tmp_path), log_every_n_steps=every)
    # The rate schedule is 1e-2 / (1 + step).
    place = re.escape(f"epoch 1, step 7, learning rate {1e-2 / 7:.3e}; last good checkpoint: {tmp_path / step_name(4)};")
    with pytest.raises(DnaError, match=rf"training loss is (nan|inf) at {place}"):
        trainer.fit(Breaking(7, loss), ToyData())
    # Found at the next reading: at once, at step 10, or when the epoch's end is to be saved.
    assert trainer.global_step == {1: 7, 5: 8, 50: 8}[every]
    newest = torch.load(newest_checkpoint(tmp_path), weights_only=True)
    assert list(step_files(tmp_path)) == [4]
    assert all(torch.isfinite(weight).all() for weight in newest["state_dict"].values())


def test_reading_waits_for_the_device_every_n_steps_only(tmp_path):
    class Count(Callback):
        reads = 0

    class Counting(TrainLog):
        def _read(self, trainer, task):
            Count.reads += 1
            super()._read(trainer, task)

    trainer = make_trainer(tmp_path, Counting(), log_every_n_steps=4, enable_checkpointing=False, limit_val_batches=0)
    trainer.fit(ToyTask(), ToyData())
    # 12 steps: three rows and three epoch ends.
    assert Count.reads == 6
