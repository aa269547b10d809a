"""Optimiser steps that float16's loss scaler leaves out because a gradient overflowed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dna_suite.runs.checkpoints import last_checkpoint
from dna_suite.runs.failures import underflowed

LEAST_SCALE = 1e-4


class SkippedSteps:
    """Counts skipped steps without waiting for the device: the scaler lowers its scale after each of them and only then.

    Lightning, the schedule and the checkpoints count a skipped step as a step.

    Args:
        scaler: the scaler that training uses.
        device: where it scales.
        count: steps skipped before.

    Source: fairseq ends a run whose scale falls below 1e-4, which is 30 skips in a row from the usual start.
    """

    def __init__(self, scaler: torch.amp.GradScaler, device: torch.device, count: int = 0) -> None:
        self.count = count
        self._scaler = scaler
        self._one = torch.ones((), device=device)
        self._scale = self._scaler.scale(self._one)
        self._unread = torch.zeros((), device=device)

    @classmethod
    def of(cls, trainer: Any, count: int) -> SkippedSteps | None:
        """A counter for the trainer's scaler, or None where it has none."""
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        return None if scaler is None else cls(scaler, trainer.strategy.root_device, count)

    def note(self) -> None:
        """Look at the scale after an optimiser step, on the device."""
        scale = self._scaler.scale(self._one)
        self._unread += scale < self._scale
        self._scale = scale

    def read(self, trainer: Any, lr: float) -> None:
        """Wait for the device and add up.

        Args:
            trainer: says where training is.
            lr: rate of the newest step.

        Raises:
            DnaError: the scale has fallen so far that no step will be taken any more.
        """
        values: Tensor = torch.stack([self._unread, self._scale])
        unread, scale = values.tolist()
        self.count += int(unread)
        self._unread.zero_()
        if scale < LEAST_SCALE:
            place = {"epoch": trainer.current_epoch, "step": trainer.global_step}
            raise underflowed(scale, self.count, **place, lr=lr, checkpoint=last_checkpoint(trainer))
