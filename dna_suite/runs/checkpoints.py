"""When a run is saved: at optimiser-step borders, the newest two files and the best one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from dna_suite.errors import DnaError, UnknownName
from dna_suite.runs.checkpoint_files import BEST, remove_stale_parts, step_files, step_name

KEEP = 2


class RunCheckpoints(Checkpoint):
    """Saves a run so that it can go on bit for bit, and keeps the checkpoint with the best monitored value.

    A step file is written at a border between optimiser steps, where no partial gradient exists: every `every_n_steps`
    steps, before a validation that is due (so that a long one risks nothing), and after each epoch. `best.ckpt` is a full
    save after a validation, for testing and export. What to monitor is the task's `monitor` and `monitor_mode`.
    Derives from `Checkpoint` because Lightning calls those last, when averages of the weights have been updated.

    Args:
        folder: where the files go.
        every_n_steps: optimiser steps between saves inside an epoch; None saves at validations and epoch ends only.

    Raises:
        DnaError: the monitored value was never logged, weights are not finite, a file cannot be written, or the run being
            resumed had another data order.
    """

    def __init__(self, folder: str | Path, every_n_steps: int | None = None) -> None:
        if every_n_steps is not None and every_n_steps < 1:
            raise DnaError(f"checkpoints every {every_n_steps} steps: 1 or more, or null for epoch ends only")
        self.folder = Path(folder)
        self.every_n_steps = every_n_steps
        self.last_step = -1
        self.best: dict[str, Any] | None = None
        self._saved: tuple[int, bool] | None = None

    @property
    def last_path(self) -> Path | None:
        """The newest step file that this process wrote or went on from, or None."""
        return self.folder / step_name(self.last_step) if self.last_step >= 0 else None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Make the folder and remove part files of killed processes."""
        if stage == "fit" and trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_stale_parts(self.folder)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Save at a border inside an epoch, or before a validation."""
        if not at_border(trainer):
            return
        every = self.every_n_steps is not None and trainer.global_step % self.every_n_steps == 0
        if owes_validation(trainer) or (every and not at_last_batch(trainer)):
            self.save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after an epoch and its validation; replaces a file of the same step that was written before them."""
        self.save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the weights where the monitored value is the best so far."""
        if trainer.sanity_checking or trainer.state.fn != "fit" or (value := monitored_value(trainer, pl_module)) is None:
            return
        if not self._improves(value, pl_module):
            return
        before = self.best
        self.best = describe_best(trainer, pl_module, value)
        try:
            trainer.save_checkpoint(self.folder / BEST, weights_only=False)
        except BaseException:
            self.best = before
            raise

    def save(self, trainer: Trainer) -> Path:
        """Write the step file of this border, once, and remove all but the newest two; every process must call it."""
        assert at_border(trainer), "a checkpoint inside an accumulation window loses its partial gradient"
        state = (trainer.global_step, owes_validation(trainer))
        path = self.folder / step_name(trainer.global_step)
        if state == self._saved:
            return path
        trainer.save_checkpoint(path, weights_only=False)
        self._saved, self.last_step = state, trainer.global_step
        if trainer.is_global_zero:
            self._prune(trainer.global_step)
        return path

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Refuse weights that are not finite; mark a validation that is due and not done, so that the resumed run does it."""
        require_finite_weights(trainer, pl_module, self.last_path)
        if owes_validation(trainer):
            mark_owed_validation(checkpoint["loops"]["fit_loop"])

    def on_load_checkpoint(self, trainer: Any, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Refuse to go on with another data order than the stored one."""
        if trainer.state.fn == "fit":
            stored = checkpoint.get("dna", {}).get("position")
            require_same_position(stored, trainer.datamodule.position() if stored else None)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Know the file that the run goes on from."""
        if (self.folder / step_name(trainer.global_step)).is_file():
            self.last_step = trainer.global_step

    def state_dict(self) -> dict[str, Any]:
        """The best validation so far."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.best = state_dict["best"]

    def _improves(self, value: float, task: LightningModule) -> bool:
        if not math.isfinite(value):
            return False
        if self.best is None or self.best["metric"] != task.monitor:
            return True
        return value > self.best["value"] if task.monitor_mode == "max" else value < self.best["value"]

    def _prune(self, newest: int) -> None:
        """Keep the file of step `newest` and the one before; files of later steps were not whole when the run resumed."""
        older = [step for step in step_files(self.folder) if step < newest]
        kept = {newest, *older[-(KEEP - 1) :]}
        for step, path in step_files(self.folder).items():
            if step not in kept:
                path.unlink(missing_ok=True)


def at_border(trainer: Trainer) -> bool:
    """Whether the newest micro-batch filled its accumulation window, so that no partial gradient exists."""
    done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    return done % trainer.accumulate_grad_batches == 0 or at_last_batch(trainer)


def at_last_batch(trainer: Trainer) -> bool:
    """Whether the newest micro-batch was the last one of its epoch."""
    return trainer.fit_loop.epoch_loop.batch_progress.current.ready >= trainer.num_training_batches


def owes_validation(trainer: Any) -> bool:
    """Whether, inside `on_train_batch_end`, a validation follows that has not begun."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    every = trainer.check_val_every_n_epoch
    done = progress.total.processed if every is None else progress.current.processed
    if done % trainer.val_check_batch or progress.current.completed == progress.current.processed:
        return False
    return trainer.enable_validation and (every is None or (trainer.current_epoch + 1) % every == 0)


def mark_owed_validation(fit_loop: dict[str, Any]) -> None:
    """Edit stored loop counters so that Lightning takes them for a stop inside the validation.

    Saved as they are, the counters say that the batch is not complete, and Lightning 2.6 skips the validation on resume.
    With the batch complete and one validation batch begun, it goes straight to the whole validation.

    Args:
        fit_loop: the state of the fit loop in a checkpoint; plain integers, changed in place.
    """
    batches = fit_loop["epoch_loop.batch_progress"]
    validation = fit_loop["epoch_loop.val_loop.batch_progress"]
    for count in ("total", "current"):
        batches[count]["completed"] = batches[count]["processed"]
        validation[count].update(ready=1, started=1, processed=0, completed=0)


def monitored_value(trainer: Trainer, task: Any) -> float | None:
    """The value that decides which checkpoint is best; None where the task monitors nothing.

    Raises:
        DnaError: the metric was not logged in validation; those that were are named.
    """
    if getattr(task, "monitor", None) is None:
        return None
    if task.monitor not in trainer.callback_metrics:
        raise UnknownName("monitored metric", task.monitor, trainer.callback_metrics)
    return float(trainer.callback_metrics[task.monitor])


def describe_best(trainer: Trainer, task: Any, value: float) -> dict[str, Any]:
    """Metric, value, epoch and optimiser step of the best validation, and all its metrics as (value, samples)."""
    counted = getattr(task, "results", {})
    logged = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val/")}
    metrics = {name: (value, counted[name][1] if name in counted else None) for name, value in logged.items()}
    place = {"epoch": trainer.current_epoch, "step": trainer.global_step}
    return {"metric": task.monitor, "value": value, **place, "metrics": metrics}


def require_finite_weights(trainer: Trainer, task: LightningModule, last: Path | None) -> None:
    """Refuse to write weights that hold NaN or infinity; costs one device synchronisation.

    Raises:
        DnaError: some process holds such a weight; epoch, step and the last good checkpoint are named.
    """
    weights = [weight.detach() for weight in task.parameters()]
    largest = torch.nn.utils.get_total_norm(weights, norm_type=math.inf).float()
    bad = (~torch.isfinite(largest)).float().to(trainer.strategy.root_device)
    if trainer.world_size > 1:
        bad = trainer.strategy.reduce(bad, reduce_op="max")
    if bad.item():
        raise DnaError(
            f"weights are not finite at epoch {trainer.current_epoch}, step {trainer.global_step}: nothing was saved; "
            f"last good checkpoint: {last or 'none'}"
        )


def require_same_position(stored: Mapping[str, Any] | None, current: Mapping[str, Any] | None) -> None:
    """Refuse a resume in which a step would see other samples than it would have seen.

    Args:
        stored: seed, global batch, accumulation, processes and training length of the checkpoint, or None.
        current: the same of this run.

    Raises:
        DnaError: a value differs; each difference is named with both values.
    """
    if stored is None or current is None:
        return
    changed = [f"{key}: checkpoint {value}, now {current.get(key)}" for key, value in stored.items() if value != current.get(key)]
    if changed:
        raise DnaError(f"this run cannot go on bit for bit: {'; '.join(changed)}")


def last_checkpoint(trainer: Trainer) -> Path | None:
    """The newest step file of the running trainer, or None."""
    found = [callback.last_path for callback in trainer.checkpoint_callbacks if isinstance(callback, RunCheckpoints)]
    return found[0] if found else None
