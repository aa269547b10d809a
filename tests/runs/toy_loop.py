"""A small task and data module with everything that an exact resume has to get right, and a run that can be stopped anywhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from dna_suite.data.order import IDLE, Counted, EpochBatches, EvalBatches, mark
from dna_suite.data.position import generator_of
from dna_suite.metrics.classification import ClassificationScores
from dna_suite.runs.checkpoint_files import newest_checkpoint
from dna_suite.runs.checkpoint_io import AtomicCheckpointIO
from dna_suite.runs.checkpoints import RunCheckpoints, at_border
from dna_suite.runs.signals import Signals, Stopped
from dna_suite.runs.step_seed import StepSeed
from dna_suite.runs.train_log import TrainLog
from dna_suite.runs.weight_average import WeightAverage

WIDTH, CLASSES, BATCH, EPOCHS = 6, 3, 4, 3


class Rows(Dataset[dict[str, Any]]):
    """Rows of numbers with labels, the same for every call."""

    def __init__(self, length: int) -> None:
        generator = torch.Generator().manual_seed(length)
        self.rows = torch.randn(length, WIDTH, generator=generator)
        self.labels = torch.randint(CLASSES, (length,), generator=generator)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.rows[index], "label": self.labels[index]}


class NoisyRows(Rows):
    """Training rows with noise as a function of (seed, epoch, index).

    Unlike `Seeded` it leaves the global generators of this process alone, as data loading workers do; dropout then depends on
    the step's seed only.
    """

    def __init__(self, length: int, seed: int, noise: float) -> None:
        super().__init__(length)
        self.seed, self.noise = seed, noise

    def __getitem__(self, key: Any) -> dict[str, Any]:
        epoch, index, repeat = key
        row = super().__getitem__(index)
        drawn = generator_of("noise", self.seed, epoch, index).standard_normal(WIDTH)
        return mark({**row, "image": row["image"] + self.noise * torch.from_numpy(drawn).float()}, index, repeat != IDLE)


class ToyData(LightningDataModule):
    def __init__(
        self,
        length: int = 14,
        validation: int = 7,
        batch: int = BATCH,
        eval_batch: int = BATCH,
        seed: int = 0,
        noise: float = 0.1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.eval_batch, self.dtype = eval_batch, dtype
        self.length, self.validation, self.batch, self.seed, self.noise = length, validation, batch, seed, noise
        self.resumed = 0
        self.workers = 0
        self.persistent = False

    @property
    def train_batches(self) -> EpochBatches:
        trainer = self.trainer
        return EpochBatches(
            self.length, self.batch, seed=self.seed, accumulate=trainer.accumulate_grad_batches, rank=trainer.global_rank,
            world=trainer.world_size, done=lambda: max(trainer.global_step, self.resumed),
        )  # fmt: skip

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            NoisyRows(self.length, self.seed, self.noise), batch_sampler=self.train_batches, num_workers=self.workers,
            persistent_workers=self.persistent and self.workers > 0,
        )  # fmt: skip

    def val_dataloader(self) -> DataLoader:
        trainer = self.trainer
        batches = EvalBatches(self.validation, self.eval_batch, rank=trainer.global_rank, world=trainer.world_size)
        return DataLoader(
            Counted(Rows(self.validation)), batch_sampler=batches, collate_fn=lambda samples: default_collate(list(samples))
        )  # fmt: skip

    test_dataloader = val_dataloader

    def on_before_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> dict[str, Any]:
        return {**batch, "image": batch["image"].to(self.dtype)}

    def position(self) -> dict[str, int]:
        return {"seed": self.seed, "accumulate": self.trainer.accumulate_grad_batches, "length": self.length}

    def state_dict(self) -> dict[str, int]:
        return {"step": self.trainer.global_step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.resumed = state["step"]


class ToyTask(LightningModule):
    """BatchNorm, dropout, mixing and a rate per step: whatever depends on a position or carries state."""

    monitor = "val/top1"
    monitor_mode = "max"

    def __init__(self, net: nn.Module | None = None, mixing: bool = True) -> None:
        super().__init__()
        torch.manual_seed(3)
        layers = (nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, CLASSES))
        self.net = nn.Sequential(*layers) if net is None else net
        self.mixing = mixing
        self.scores = ClassificationScores(CLASSES)
        self.train_loss_sum, self.train_count = torch.zeros(()), 0

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        rows = batch["image"]
        if self.mixing:
            drawn = generator_of("mixing", 0, self.trainer.global_step, batch_idx, self.global_rank)
            share = float(drawn.beta(1.0, 1.0))
            rows = share * rows + (1 - share) * rows.flip(0)
        losses = F.cross_entropy(self.net(rows), batch["label"], reduction="none") * batch["counted"]
        count = batch["counted"].sum()
        loss = losses.sum() / count.clamp(min=1)
        self.train_loss_sum += loss.detach() * count
        self.train_count += int(count)
        return loss * self.trainer.datamodule.train_batches.weight(batch_idx)

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.scores.update(self.net(batch["image"]), batch["label"], batch["counted"])

    def on_validation_epoch_end(self) -> None:
        self.log_dict({f"val/{name}": value for name, value in self.scores.compute().items()}, logger=False)
        self.scores.reset()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["dna"] = {"version": 1, "position": self.trainer.datamodule.position()}


@dataclass
class Trace(Callback):
    """What a run saw, and a signal sent during one of its optimiser steps."""

    stop_at: int | None = None
    number: int = signal.SIGTERM
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    validations: list[tuple[Any, ...]] = field(default_factory=list)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.lr = trainer.optimizers[0].param_groups[0]["lr"]
        if self.stop_at is not None and trainer.global_step == self.stop_at - 1:
            os.kill(os.getpid(), self.number)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        ids, pixels, loss = batch["index"].tolist(), float(batch["image"].sum()), float(outputs["loss"])
        self.steps.append((ids, pixels, loss, self.lr, batch_idx, trainer.global_step))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self.validations.append((trainer.global_step, float(trainer.callback_metrics["val/loss"])))


@dataclass
class Outcome:
    """What a run, or a chain of stopped and resumed runs, came to."""

    state: dict[str, Any]
    trace: Trace
    trainer: Trainer
    stops: list[int]


def make_trainer(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    settings = {
        "max_epochs": EPOCHS, "accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False,
        "enable_model_summary": False, "use_distributed_sampler": False, "default_root_dir": folder, "log_every_n_steps": 2,
        "plugins": [AtomicCheckpointIO()], "gradient_clip_val": 1.0,
    }  # fmt: skip
    return Trainer(**{**settings, **options}, callbacks=list(callbacks))


def run(
    folder: Path,
    stops: Sequence[int] = (),
    length: int = 14,
    seed: int = 0,
    ema: float | None = None,
    workers: Sequence[int] = (0,),
    persistent: bool = False,
    **options: Any,
) -> Outcome:
    """Train to the end; at each step of `stops` a signal ends the process's run and a new trainer goes on from its files.

    `workers` are the loader processes of the first part, the second, and so on in turns.
    """
    trace = Trace()
    stopped: list[int] = []
    for part, stop_at in enumerate([*stops, None]):
        torch.manual_seed(part + 100)
        trace.stop_at = stop_at
        checkpoints = RunCheckpoints(folder / "checkpoints")
        average = [] if ema is None else [WeightAverage(ema)]
        trainer = make_trainer(
            folder, *average, StepSeed(seed), TrainLog(), Signals(checkpoints), checkpoints, trace, **options
        )  # fmt: skip
        data = ToyData(length, seed=seed)
        data.workers, data.persistent = workers[part % len(workers)], persistent
        try:
            trainer.fit(ToyTask(), data, ckpt_path=newest_checkpoint(folder / "checkpoints"), weights_only=True)
        except Stopped:
            stopped.append(trainer.global_step)
            if not at_border(trainer):
                # Stopped in a validation inside a window, behind a border that was saved: its micro-batches are done again.
                begun = trainer.fit_loop.epoch_loop.batch_progress.current.ready % trainer.accumulate_grad_batches
                del trace.steps[-begun:]
    return Outcome(saved_state(folder / "checkpoints"), trace, trainer, stopped)


def saved_state(folder: Path) -> dict[str, Any]:
    """What the newest checkpoint of a folder holds of the model: weights, their average, moments and rates."""
    newest = newest_checkpoint(folder)
    assert newest is not None
    content = torch.load(newest, weights_only=True)
    parts = ("state_dict", "current_model_state", "averaging_state", "optimizer_states", "lr_schedulers", "global_step")
    return {part: content[part] for part in parts if part in content}


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, through dictionaries and lists."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b
