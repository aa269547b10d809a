"""A moving average of the weights, which is what gets validated, tested and exported."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor

from dna_suite.errors import DnaError


class WeightAverage(WeightAveraging):
    """Exponential moving average of the parameters, updated after each optimiser step; buffers are the network's own.

    Validation runs on the average. A checkpoint holds it as `state_dict`, the trained weights as `current_model_state` and the
    number of updates as `averaging_state`, so test, predict and export need not know of it and a resume goes on with both. The
    average starts as a copy of the weights after the first step.

    Args:
        decay: what an update keeps of the average.
        warmup: use `(1 + n) / (10 + n)` at optimiser step n as long as that is less than `decay`, so that the first steps of a
            short run do not weigh on it for long.

    Raises:
        DnaError: the strategy shards the weights, or the weights are kept in half precision.

    Source: Lightning's own EMAWeightAveraging calls Python once per tensor, and averages integer buffers into wrong ones.
    """

    def __init__(self, decay: float, warmup: bool = False) -> None:
        super().__init__(use_buffers=False, multi_avg_fn=self.average)
        self.decay, self.warmup = decay, warmup
        self._kept = decay

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Copy the network."""
        if stage != "fit":
            return
        if not isinstance(trainer.strategy, DDPStrategy | SingleDeviceStrategy):
            name = type(trainer.strategy).__name__
            raise DnaError(f"model.ema averages whole weights, and {name} shards them: ddp, or model.ema null")
        if str(trainer.precision) in ("16-true", "bf16-true"):
            raise DnaError(
                f"model.ema with trainer.precision {trainer.precision}: a step of the average is smaller than half precision can "
                "add; bf16-mixed keeps the weights in float32"
            )
        super().setup(trainer, pl_module, stage)
        # Asked at every step whether it is 0; on a GPU each answer would wait for the step to end.
        assert self._average_model is not None
        self._average_model.n_averaged = self._average_model.n_averaged.cpu()

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """After every optimiser step; the decay is a function of the step, so that a resume needs no state for it."""
        if step_idx is None:
            return False
        self._kept = decay_at(step_idx, self.decay, self.warmup)
        return True

    def average(self, averages: list[Tensor], weights: list[Tensor], updates: Any) -> None:
        """Move averages towards weights, in place."""
        with torch.no_grad():
            torch._foreach_lerp_(averages, weights, 1 - self._kept)


def decay_at(step: int, decay: float, warmup: bool) -> float:
    """The decay of one update.

    Args:
        step: optimiser steps done before the one that the update follows.
        decay: its final value.
        warmup: rise to it.

    Source: the warm-up of TensorFlow's ExponentialMovingAverage.
    """
    return min(decay, (1 + step) / (10 + step)) if warmup else decay
