import hashlib
import logging
import re
import shutil

import pytest
import torch
from lightning.pytorch import Callback
from toy_loop import ToyData, ToyTask, Trace, make_trainer, run, same

from dna_suite.errors import DnaError, UnknownName
from dna_suite.runs.checkpoint_files import best_checkpoint, newest_checkpoint, step_files, step_name
from dna_suite.runs.checkpoints import RunCheckpoints
from dna_suite.runs.step_seed import StepSeed
from dna_suite.runs.train_log import TrainLog


class Metric(Callback):
    """Puts a value of a list under the monitored name, one for each validation."""

    def __init__(self, values):
        self.values = iter(values)

    def on_validation_epoch_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            pl_module.log("val/chosen", next(self.values), logger=False)


def fit(folder, values=None, mode="max", every_n_steps=None, task=None, resume=None, **options):
    task = task or ToyTask()
    checkpoints = RunCheckpoints(folder, every_n_steps)
    callbacks = [StepSeed(0), TrainLog(), checkpoints]
    if values is not None:
        task.monitor, task.monitor_mode = "val/chosen", mode
        callbacks.append(Metric(values))
    trainer = make_trainer(folder, *callbacks, **options)
    trainer.fit(task, ToyData(), ckpt_path=resume, weights_only=True)
    return checkpoints


def hashes(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def step_of(path):
    return torch.load(path, weights_only=True)["global_step"]


def test_the_newest_two_and_the_best_are_kept(tmp_path):
    checkpoints = fit(tmp_path, [0.2, 0.9, 0.4])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.ckpt", step_name(8), step_name(12)]
    assert step_of(best_checkpoint(tmp_path)) == 8
    # log() keeps a float32.
    assert checkpoints.best["value"] == pytest.approx(0.9, rel=1e-7)
    assert (checkpoints.best["metric"], checkpoints.best["epoch"], checkpoints.best["step"]) == ("val/chosen", 1, 8)
    assert newest_checkpoint(tmp_path) == checkpoints.last_path == tmp_path / step_name(12)


@pytest.mark.parametrize(
    ("values", "mode", "best"),
    [([0.5, 0.1, 0.3], "min", 8), ([0.5, 0.5, 0.5], "max", 4), ([float("nan"), 0.1, float("inf")], "max", 8)],
)
def test_best_means_better_than_before_and_finite(tmp_path, values, mode, best):
    fit(tmp_path, values, mode)
    assert step_of(tmp_path / "best.ckpt") == best


def test_a_step_interval_saves_inside_an_epoch_but_never_inside_a_window(tmp_path, monkeypatch):
    saved = []
    real = RunCheckpoints.save
    monkeypatch.setattr(RunCheckpoints, "save", lambda self, trainer: saved.append(trainer.global_step) or real(self, trainer))
    data_batches = 4
    fit(tmp_path, every_n_steps=1, accumulate_grad_batches=3, max_epochs=2, check_val_every_n_epoch=10)
    # 4 batches in windows of 3 and 1: step 1 at the full window, step 2 after the epoch, and so on.
    assert data_batches == 4
    assert saved == [1, 2, 3, 4]


def test_an_epoch_is_saved_before_its_validation_and_after_it(tmp_path, monkeypatch):
    marks = []
    real = RunCheckpoints.on_save_checkpoint

    def spy(self, trainer, task, checkpoint):
        real(self, trainer, task, checkpoint)
        batches = checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]["current"]
        marks.append((trainer.global_step, batches["started"] - batches["processed"]))

    monkeypatch.setattr(RunCheckpoints, "on_save_checkpoint", spy)
    fit(tmp_path, [0.1], max_epochs=1)
    # Marked as owing a validation, then best.ckpt, then the whole epoch.
    assert marks == [(4, 1), (4, 0), (4, 0)]


def test_a_corrupt_newest_file_costs_an_epoch_and_nothing_else(tmp_path, caplog):
    whole = run(tmp_path / "whole")
    other = run(tmp_path / "other", max_epochs=2)
    folder = tmp_path / "other" / "checkpoints"
    newest = folder / step_name(8)
    newest.write_bytes(newest.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING):
        resumed = run(tmp_path / "other")
    assert step_name(8) in caplog.text
    assert same(resumed.state, whole.state)
    assert resumed.trace.steps == whole.trace.steps[4:]
    assert other.trace.steps == whole.trace.steps[:8]
    assert list(step_files(folder)) == [8, 12]


def test_a_moved_run_goes_on_and_the_other_run_is_untouched(tmp_path):
    whole = run(tmp_path / "whole")
    run(tmp_path / "first", max_epochs=2)
    shutil.copytree(tmp_path / "first", tmp_path / "elsewhere")
    before = hashes(tmp_path / "first" / "checkpoints")
    resumed = run(tmp_path / "elsewhere")
    assert same(resumed.state, whole.state)
    assert hashes(tmp_path / "first" / "checkpoints") == before
    content = torch.load(tmp_path / "elsewhere" / "checkpoints" / step_name(12), weights_only=True)
    assert str(tmp_path) not in str({key: value for key, value in content.items() if key != "state_dict"})


def test_the_best_value_is_remembered_over_a_resume(tmp_path):
    fit(tmp_path, [0.2, 0.9], max_epochs=2)
    resumed = fit(tmp_path, [0.4], resume=newest_checkpoint(tmp_path))
    assert resumed.best["step"] == 8
    assert step_of(tmp_path / "best.ckpt") == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [({"accumulate_grad_batches": 2}, "accumulate: checkpoint 1, now 2"), ({"seed": 5}, "seed: checkpoint 0, now 5")],
)
def test_another_data_order_is_refused(tmp_path, change, message):
    run(tmp_path, max_epochs=1)
    before = hashes(tmp_path / "checkpoints")
    with pytest.raises(DnaError, match=f"cannot go on bit for bit: {message}"):
        run(tmp_path, **change)
    assert hashes(tmp_path / "checkpoints") == before


def test_a_monitored_metric_that_is_never_logged_is_named(tmp_path):
    task = ToyTask()
    task.monitor = "val/top2"
    with pytest.raises(UnknownName, match=r"monitored metric 'val/top2'.*did you mean 'val/top.'.*val/loss"):
        fit(tmp_path, task=task)


def test_weights_that_are_not_finite_are_never_written(tmp_path):
    class Break(Callback):
        def on_before_zero_grad(self, trainer, pl_module, optimizer):
            if trainer.global_step == 6:
                pl_module.net[4].bias.data[1] = float("inf")

    checkpoints = RunCheckpoints(tmp_path, every_n_steps=1)
    trainer = make_trainer(tmp_path, checkpoints, Break())
    message = f"weights are not finite at epoch 1, step 7: nothing was saved; last good checkpoint: {tmp_path / step_name(6)}"
    with pytest.raises(DnaError, match=re.escape(message)):
        trainer.fit(ToyTask(), ToyData())
    assert newest_checkpoint(tmp_path) == tmp_path / step_name(6)


def test_an_error_in_the_loop_saves_nothing(tmp_path):
    class Fail(Trace):
        def on_train_batch_end(self, trainer, *rest):
            if trainer.global_step == 6:
                raise RuntimeError("broken")

    trainer = make_trainer(tmp_path, RunCheckpoints(tmp_path), Fail())
    with pytest.raises(RuntimeError, match="broken"):
        trainer.fit(ToyTask(), ToyData())
    assert list(step_files(tmp_path)) == [4]


def test_a_wrong_interval_is_refused(tmp_path):
    with pytest.raises(DnaError, match="every 0 steps"):
        RunCheckpoints(tmp_path, 0)
