"""Stops asked for by a signal: noted in the handler, acted on by all processes at a border between optimiser steps."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from dna_suite.errors import UnknownName
from dna_suite.runs.checkpoints import RunCheckpoints, at_border, at_last_batch, owes_validation

_logger = logging.getLogger(__name__)


class Stopped(BaseException):
    """A run that ends because of a signal; no `except Exception` takes it for a failure.

    Args:
        number: the signal's number.
        checkpoint: the file to go on from, or None.
        launched: this process was started by another rank of the run.
    """

    def __init__(self, number: int, checkpoint: Path | None = None, launched: bool = False) -> None:
        where = f"go on with dna fit --resume {checkpoint.parent.parent}" if checkpoint else "nothing was saved yet"
        super().__init__(f"stopped by {signal.Signals(number).name}; {where}")
        self.number = number
        self.checkpoint = checkpoint
        self.launched = launched

    @property
    def exit_code(self) -> int:
        """128 + the signal's number; 0 in a launched process, since Lightning kills a parent whose child ends otherwise."""
        return 0 if self.launched else 128 + self.number


class Signals(Checkpoint):
    """Ends a run on TERM, INT and the requeue signal, after a checkpoint at the next border.

    The handler stores the signal's number and passes it on to launched processes, nothing else; a second INT raises
    `KeyboardInterrupt` (not in launched processes, which a terminal's Ctrl-C reaches twice). At a border the processes agree on
    the highest number that any of them got, save together and raise `Stopped`. Where there is no step to finish (setup, sanity
    check, test, predict) the handler raises `Stopped` at once.
    Lightning's own handlers end with exit code 0 or 1, save in mid-step, and hang several processes.

    Args:
        checkpoints: writes the file; None stops without one.
        requeue_signal: a further signal by name, such as "USR1", that a scheduler sends before the time limit.
        requeue: put the SLURM job back into the queue after the requeue signal.

    Raises:
        UnknownName: there is no signal of that name.
    """

    def __init__(self, checkpoints: RunCheckpoints | None, requeue_signal: str | None = None, requeue: bool = False) -> None:
        self.checkpoints = checkpoints
        self.requeue_number = None if requeue_signal is None else signal_number(requeue_signal)
        self.requeue = requeue
        self.noted = 0
        self._at_once = True
        self._active = False
        self._previous: dict[int, Any] = {}
        self._forward: Callable[[int], None] | None = None
        self._launched = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Raise at once until training begins; forget a stop of an earlier call."""
        launcher = trainer.strategy.launcher
        self._forward = getattr(launcher, "kill", None)
        environment = getattr(trainer.strategy, "cluster_environment", None)
        self._launched = trainer.local_rank > 0 and isinstance(environment, LightningEnvironment)
        self.noted = 0
        self._install(at_once=True)

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the handlers back that Lightning has set after `setup`."""
        self._install(at_once=True)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on a signal waits for the next border."""
        self._install(at_once=False)
        if trainer.received_sigterm and not self.noted:
            self.noted = signal.SIGTERM

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop at a border; after an epoch's last batch only if its validation follows, else `on_train_epoch_end` does it."""
        if at_border(trainer) and (not at_last_batch(trainer) or owes_validation(trainer)):
            self._stop_if_asked(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop after an epoch."""
        self._stop_if_asked(trainer)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Stop inside a validation if the state before it was saved, so that a long one does not use up the grace period."""
        training = trainer.state.fn == "fit" and not trainer.sanity_checking
        if training and self.checkpoints is not None and self.checkpoints.last_step == trainer.global_step:
            number = self._agreed(trainer)
            if number:
                self._end(trainer, number, self.checkpoints.last_path)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise at once in `validate`, which has no step to finish."""
        if trainer.state.fn != "fit":
            self._install(at_once=True)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise at once."""
        self._install(at_once=True)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise at once."""
        self._install(at_once=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop for a signal that came after the last border; a later one has nothing to wait for."""
        if number := self._agreed(trainer):
            self._end(trainer, number, self.checkpoints.last_path if self.checkpoints else None)
        self._at_once = True

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give the handlers back."""
        self._restore()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the handlers back."""
        self._restore()

    def _install(self, at_once: bool) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._at_once, self._active = at_once, True
        for number in {signal.SIGTERM, signal.SIGINT, *([self.requeue_number] if self.requeue_number else [])}:
            handler = signal.getsignal(number)
            if handler != self._handle:
                self._previous.setdefault(number, handler)
                signal.signal(number, self._handle)

    def _restore(self) -> None:
        self._active = False
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._active:
            # After an exception Lightning puts the handlers back that it found, which are these.
            self._restore()
            signal.raise_signal(number)
            return
        if number == signal.SIGINT == self.noted and not self._launched:
            raise KeyboardInterrupt
        first, self.noted = not self.noted, number
        if first and self._forward is not None:
            self._forward(number)
        if first and self._at_once:
            if self._launched and number != signal.SIGINT:
                os.kill(os.getppid(), number)
            raise Stopped(number, self.checkpoints.last_path if self.checkpoints else None, self._launched)

    def _agreed(self, trainer: Trainer) -> int:
        """The highest signal number that any process noted; 0 is none."""
        if trainer.world_size == 1:
            return self.noted
        noted = torch.tensor(float(self.noted), device=trainer.strategy.root_device)
        return int(trainer.strategy.reduce(noted, reduce_op="max").item())

    def _stop_if_asked(self, trainer: Trainer) -> None:
        if number := self._agreed(trainer):
            self._end(trainer, number, self.checkpoints.save(trainer) if self.checkpoints else None)

    def _end(self, trainer: Trainer, number: int, checkpoint: Path | None) -> None:
        if self.requeue and number == self.requeue_number and trainer.is_global_zero:
            requeue_job()
        raise Stopped(number, checkpoint, self._launched)


def signal_number(name: str) -> signal.Signals:
    """The signal of a name with or without SIG, as in "USR1".

    Raises:
        UnknownName: this system has no such signal.
    """
    names = {known.name.removeprefix("SIG"): known for known in signal.Signals}
    short = str(name).upper().removeprefix("SIG")
    if short not in names:
        raise UnknownName("signal", name, names)
    return names[short]


def requeue_job() -> None:
    """Ask SLURM to run this job again; a refusal is a warning, as the checkpoint is there."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{task}" if array else os.environ.get("SLURM_JOB_ID")
    if job is None:
        _logger.warning("requeue was asked for, but SLURM_JOB_ID is not set: start the run again with --resume")
        return
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        _logger.warning("scontrol requeue %s failed: %s", job, getattr(error, "stderr", None) or error)


def cluster_plugins() -> list[SLURMEnvironment]:
    """Trainer plugins that keep Lightning from saving inside a signal handler under SLURM; empty elsewhere."""
    return [SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else []
