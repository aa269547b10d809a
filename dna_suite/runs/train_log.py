"""Loss, learning rate and speed of training, read from the device every n steps and given to the loggers."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from dna_suite.runs.checkpoints import at_border, last_checkpoint
from dna_suite.runs.failures import diverged
from dna_suite.runs.loss_scale import SkippedSteps
from dna_suite.runs.metrics_csv import MetricsCsv

STATE = "train_log"


class TrainLog(Callback):
    """Writes train/loss, train/lr, train/samples_per_second and epoch every `trainer.log_every_n_steps` optimiser steps, and
    train/epoch_loss after each epoch, to every logger, keyed by the optimiser step.

    The task adds loss x count to its tensor `train_loss_sum` and count to `train_count`; they are read and zeroed here, summed
    over the processes. That is the only device synchronisation: a `self.log` in a training step costs 0.4 ms each time.
    A loss that is NaN or infinite is found at the next reading, which also stands before every save, and is told with the step it
    came from: the losses of single steps are kept on the device until then.

    Validation numbers (`val/...` in `trainer.callback_metrics`) go into the row of the same optimiser step. Under 16-mixed a row
    also holds train/skipped_steps, the steps so far that the loss scaler left out.

    Raises:
        DnaError: a training loss is not finite, or gradients under 16-mixed stay infinite.
    """

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}
        self.window = (0.0, 0)
        self.epoch = (0.0, 0)
        self.skipped: SkippedSteps | None = None
        self._skipped_before = 0
        self._losses: list[tuple[int, float, Tensor]] = []
        self._lr = math.nan
        self._logged_step = -1
        self._seconds = 0.0
        self._timed = 0
        self._clock = perf_counter()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Drop rows that this run will make again."""
        self._logged_step = trainer.global_step
        self.skipped = SkippedSteps.of(trainer, self._skipped_before)
        for logger in trainer.loggers:
            if isinstance(logger, MetricsCsv):
                logger.rewind(trainer.global_step)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the epoch's sums and the clock."""
        self.epoch = (0.0, 0)
        self._clock = perf_counter()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note the rate that this step uses; afterwards the schedule has moved on."""
        self._lr = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Every n optimiser steps, read the sums and write a row."""
        step = trainer.global_step
        bordering = at_border(trainer)
        self._losses.append((step if bordering else step + 1, self._lr, outputs["loss"].detach()))
        if bordering and self.skipped is not None:
            self.skipped.note()
        if not bordering or step % trainer.log_every_n_steps or step == self._logged_step:
            return
        self._read(trainer, pl_module)
        self._stop_clock()
        loss_sum, count = self.window
        if not count:
            return
        self.latest = {
            "train/loss": loss_sum / count,
            "train/lr": self._lr,
            "train/samples_per_second": self._timed / max(self._seconds, 1e-9),
        }
        if self.skipped is not None:
            self.latest["train/skipped_steps"] = self.skipped.count
        self._write(trainer, {**self.latest, "epoch": trainer.current_epoch})
        self.window, self._logged_step = (0.0, 0), step
        self._seconds, self._timed = 0.0, 0

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation is no training time."""
        self._stop_clock()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the validation's numbers beside the training's."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            values = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val/")}
            self._write(trainer, {**values, "epoch": trainer.current_epoch})
        self._clock = perf_counter()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the mean loss over the epoch's samples."""
        self._read(trainer, pl_module)
        self._stop_clock()
        loss_sum, count = self.epoch
        if count:
            self._write(trainer, {"train/epoch_loss": loss_sum / count, "epoch": trainer.current_epoch})

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Store the sums so that a resumed run writes the same rows; a loss that is not finite stops the save."""
        self._read(trainer, pl_module)
        checkpoint[STATE] = {"window": list(self.window), "epoch": list(self.epoch)}
        if self.skipped is not None:
            checkpoint[STATE]["skipped"] = self.skipped.count

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Go on with the stored sums."""
        if STATE in checkpoint:
            self.window, self.epoch = (tuple(checkpoint[STATE][name]) for name in ("window", "epoch"))
            self._skipped_before = checkpoint[STATE].get("skipped", 0)

    def _read(self, trainer: Any, task: Any) -> None:
        """Move the device's sums over all processes into those of the window and the epoch."""
        sums = torch.stack([task.train_loss_sum.float(), task.train_loss_sum.new_tensor(task.train_count, dtype=torch.float32)])
        task.train_loss_sum.zero_()
        task.train_count = 0
        if trainer.world_size > 1:
            sums = trainer.strategy.reduce(sums, reduce_op="sum")
        loss_sum, count = sums.tolist()
        if not math.isfinite(loss_sum):
            raise self._diverged(trainer)
        if self.skipped is not None:
            self.skipped.read(trainer, self._lr)
        self._losses.clear()
        self.window = (self.window[0] + loss_sum, self.window[1] + int(count))
        self.epoch = (self.epoch[0] + loss_sum, self.epoch[1] + int(count))
        self._timed += int(count)

    def _diverged(self, trainer: Any) -> Exception:
        """The error for the first loss that is not finite; in another process than the one that had it, for the newest."""
        newest = (trainer.global_step, self._lr, math.nan)
        found = [(step, lr, loss.item()) for step, lr, loss in self._losses]
        step, lr, loss = next((entry for entry in found if not math.isfinite(entry[2])), newest)
        return diverged(loss, epoch=trainer.current_epoch, step=step, lr=lr, checkpoint=last_checkpoint(trainer))

    def _stop_clock(self) -> None:
        now = perf_counter()
        self._seconds, self._clock = self._seconds + now - self._clock, now

    def _write(self, trainer: Any, row: dict[str, float]) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(row, step=trainer.global_step)
