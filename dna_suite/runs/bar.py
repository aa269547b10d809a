"""Progress on one line of a terminal, or as a few lines of a log file."""

from __future__ import annotations

import math
import shutil
import sys
from time import perf_counter
from typing import Any, TextIO

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar

from dna_suite.runs.train_log import TrainLog

LOG_SECONDS = 30.0
TERMINAL_SECONDS = 0.1
MOST_EPOCH_LINES = 100


class RunBar(ProgressBar):
    """Epoch, step, samples per second, loss, rate, the monitored metric and the remaining time.

    On a terminal one line is redrawn ten times a second. Elsewhere there is a line every 30 seconds and one at an epoch's end,
    at most a hundred of the latter in a run. Loss and rate are those that `TrainLog` read last, so that drawing never waits
    for the device.

    Args:
        stream: where it is written; None is the standard error stream.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self.stream = sys.stderr if stream is None else stream
        self.terminal = self.stream.isatty()
        self.enabled = True
        self._log: TrainLog | None = None
        self._samples, self._busy, self._last = 0, 0.0, perf_counter()
        self._drawn = perf_counter()
        self._began, self._first_step = perf_counter(), 0
        self._open_line = False

    def disable(self) -> None:
        """Draw nothing."""
        self.enabled = False

    def enable(self) -> None:
        """Draw again."""
        self.enabled = True

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print above the bar."""
        self._finish_line()
        print(*args, **{"file": self.stream, **kwargs})

    def on_train_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Start the clocks."""
        self._log = next((callback for callback in trainer.callbacks if isinstance(callback, TrainLog)), None)
        self._began = self._last = perf_counter()
        self._first_step = trainer.global_step

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Time between epochs is no training time."""
        self._last = perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count samples; draw if it is time."""
        now = perf_counter()
        self._busy, self._last = self._busy + now - self._last, now
        self._samples += len(batch["counted"])
        if self._due(now):
            self._draw(self._training_text(trainer, pl_module))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave a line for the epoch."""
        epochs = trainer.max_epochs or 1
        every = math.ceil(epochs / MOST_EPOCH_LINES)
        if self.enabled and (self.terminal or (trainer.current_epoch + 1) % every == 0 or trainer.current_epoch + 1 == epochs):
            self._draw(self._training_text(trainer, pl_module, with_metric=True))
            self._finish_line()

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Show how far a validation is."""
        self._evaluation("validation", batch_idx, trainer.num_val_batches)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validation is no training time."""
        self._last = perf_counter()

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Show how far a test is."""
        self._evaluation("test", batch_idx, trainer.num_test_batches)

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Show how far a prediction is."""
        self._evaluation("predict", batch_idx, trainer.num_predict_batches)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """End the line."""
        self._finish_line()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End the line, so that the message stands on its own."""
        self._finish_line()

    def _training_text(self, trainer: Trainer, task: LightningModule, with_metric: bool = False) -> str:
        epochs = trainer.max_epochs or 1
        steps = epochs * math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
        done = trainer.global_step - self._first_step
        parts = [f"epoch {trainer.current_epoch + 1}/{epochs}", f"step {trainer.global_step}/{steps}"]
        if self._busy:
            parts.append(f"{self._samples * trainer.world_size / self._busy:,.0f} samples/s")
            self._samples, self._busy = 0, 0.0
        if self._log is not None and self._log.latest:
            parts += [f"loss {self._log.latest['train/loss']:.4f}", f"lr {self._log.latest['train/lr']:.2e}"]
            if skipped := self._log.latest.get("train/skipped_steps"):
                parts.append(f"{skipped} steps skipped")
        monitor = getattr(task, "monitor", None)
        if with_metric and monitor in trainer.callback_metrics:
            parts.append(f"{monitor} {float(trainer.callback_metrics[monitor]):.4f}")
        if done:
            left = (perf_counter() - self._began) / done * (steps - trainer.global_step)
            parts.append(f"{duration(left)} left")
        return "  ".join(parts)

    def _evaluation(self, what: str, batch_idx: int, batches: Any) -> None:
        if self._due(perf_counter()):
            total = sum(batches) if isinstance(batches, list) else batches
            self._draw(f"{what} {batch_idx + 1}/{total} batches")

    def _due(self, now: float) -> bool:
        return self.enabled and now - self._drawn >= (TERMINAL_SECONDS if self.terminal else LOG_SECONDS)

    def _draw(self, text: str) -> None:
        self._drawn = perf_counter()
        if self.terminal:
            width = shutil.get_terminal_size().columns
            self.stream.write(f"\r{text[: width - 1]}\x1b[K")
            self._open_line = True
        else:
            self.stream.write(f"{text}\n")
        self.stream.flush()

    def _finish_line(self) -> None:
        if self._open_line:
            self.stream.write("\n")
            self.stream.flush()
            self._open_line = False


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss, or m:ss below an hour."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
