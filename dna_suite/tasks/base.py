"""What every task shares: when the network is built, how a step is weighted, what a checkpoint says about itself."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Any

import lightning.pytorch as pl
import numpy
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from dna_suite.data.base import Data
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec, OptimSpec, ScheduleSpec
from dna_suite.tasks.optim import build_optimizer, build_schedule, check_numbers, scaled_lr

DESCRIPTION_VERSION = 1


class Task(pl.LightningModule):
    """A LightningModule that holds one network as `net` and follows the suite's loop.

    A subclass builds the network, turns a batch into a loss, and names the metric that `best.ckpt` is chosen by.

    Args:
        attention: which attention stands in which layers.
        optim: optimiser.
        schedule: learning rate over the run.
        compile: compile the network's forward; state-dict keys stay as they are.
        channels_last: keep pictures in channels-last memory order.
        ema: decay of a moving average of the weights (runs/weight_average.py); None keeps none.
        ema_warmup: let the decay rise to `ema` with the optimiser step.

    Raises:
        DnaError: a number of optimiser, schedule or average is out of range, or there is a warm-up of no average.
    """

    name: str
    monitor: str
    monitor_mode = "max"

    def __init__(
        self,
        attention: AttentionSpec,
        optim: OptimSpec,
        schedule: ScheduleSpec,
        compile: bool,
        channels_last: bool,
        ema: float | None = None,
        ema_warmup: bool = False,
    ) -> None:
        super().__init__()
        check_numbers(optim, schedule)
        if ema is not None and not 0 <= ema < 1:
            raise DnaError(f"model.ema {ema}: from 0 to below 1 (0.9999 for a long run), or null for no average")
        if ema_warmup and ema is None:
            raise DnaError("model.ema_warmup true: there is no average to warm up without model.ema")
        self.attention = attention
        self.optim = optim
        self.schedule = schedule
        self.compile_network = compile
        self.channels_last = channels_last
        self.ema, self.ema_warmup = ema, ema_warmup
        self.seed = 0
        self.recipe = ""
        self.classes: list[str] = []
        self.net: nn.Module | None = None
        self.initial_weights: Any = None
        self.optimisation: dict[str, Any] = {}
        self.results: dict[str, tuple[float, int]] = {}
        # A plain attribute: as a buffer, DistributedDataParallel would overwrite it with rank 0's at every step.
        self.train_loss_sum = torch.zeros(())
        self.train_count = 0

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning writes the name of each hook here, forty times a step; nn.Module would look for a parameter each time.
        if name == "_current_fx_name":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @abstractmethod
    def build(self) -> nn.Module:
        """The network, with fresh weights."""

    @abstractmethod
    def loss(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Mean loss over the counted samples of a training batch; 0 where none is counted."""

    @abstractmethod
    def describe_network(self) -> dict[str, Any]:
        """What makes the network what it is, beside the attention, as plain values."""

    @property
    def data(self) -> Data:
        """The data module of the running trainer."""
        data = getattr(self.trainer, "datamodule", None)
        assert isinstance(data, Data), "a task runs with a data module of dna_suite.data"
        return data

    def setup(self, stage: str) -> None:
        """Take over what the data set decides."""
        self.adopt(self.data)

    def adopt(self, data: Data) -> None:
        """Take over what the data set decides; a task that needs its classes or sizes overrides this."""

    def configure_model(self) -> None:
        """Build the network once, from the seed, and give it the weights that the run starts from."""
        if self.net is not None:
            return
        random.seed(self.seed)
        numpy.random.seed(self.seed % 2**32)
        torch.manual_seed(self.seed)
        net = self.build()
        if self.initial_weights is not None:
            self.initial_weights(net)
        if self.channels_last:
            net = net.to(memory_format=torch.channels_last)
        if self.compile_network:
            net.compile()
        self.net = net

    def on_train_start(self) -> None:
        """Start the device-side sum that the train log reads (runs/train_log.py)."""
        self.train_loss_sum = torch.zeros((), device=self.device)
        self.train_count = 0

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of one micro-batch, weighted so that its window's gradient is the mean over the window's samples."""
        loss, present = self.loss(batch, batch_idx), batch["present"]
        self.train_loss_sum.add_(loss.detach(), alpha=present)
        self.train_count += present
        weight = self.data.train_batches.weight(batch_idx, present)
        return loss if weight == 1 else loss * weight

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """The optimiser over all trainable parameters and its schedule, stepped once per optimiser step."""
        epochs = self.trainer.max_epochs
        if epochs is None or epochs < 1:
            raise DnaError(f"trainer.max_epochs {epochs}: a whole number from 1, since the schedule needs the length of the run")
        assert self.net is not None
        peak = scaled_lr(self.optim, self.data.global_batch)
        optimizer = build_optimizer(self.net, self.optim, peak)
        steps = self.data.train_batches.steps_per_epoch
        schedule = build_schedule(optimizer, peak=peak, schedule=self.schedule, steps_per_epoch=steps, epochs=epochs)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step", "frequency": 1}}

    def describe(self) -> dict[str, Any]:
        """What a checkpoint says about itself, as plain values."""
        return {
            "version": DESCRIPTION_VERSION,
            "task": self.name,
            "recipe": self.recipe,
            **self.describe_own(),
            "optimisation": dict(self.optimisation),
            "position": self.data.position(),
        }

    def describe_own(self) -> dict[str, Any]:
        """What decides which function the network computes, as plain values."""
        return {"attention": self.attention.plain(), **self.describe_network()}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put the description beside the weights."""
        checkpoint["dna"] = self.describe()
