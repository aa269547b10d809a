"""Data modules: splits, loaders and toy twins that every data set shares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dna_suite.data.batches import Collate, collate, leave_out_skipped
from dna_suite.data.order import Counted, EpochBatches, EvalBatches, Seeded
from dna_suite.data.subset import choose_balanced
from dna_suite.data.workers import ServeOn
from dna_suite.errors import DnaError

SPLITS = ("train", "val", "test")


class Samples(Protocol):
    """One split of a data set; `labels` [n] int64, one class index per sample."""

    labels: np.ndarray

    def __getitem__(self, index: int) -> Mapping[str, Any]: ...

    def select(self, indices: np.ndarray) -> Samples:
        """The same data set with these samples only, in this order."""


class Data(LightningDataModule):
    """Splits and loaders of one data set.

    A subclass gives `classes` and `read(split)`. Batches are dictionaries of `image` uint8 [n, 3, height, width], `label` int64
    [n], `index` int64 [n] (place in the split), `counted` bool [n] and the integer `present`, the number of counted samples.

    With `on_error: skip` an unreadable sample is left out of its training batch and stays in its evaluation batch as a black
    picture that is not counted. The loss weight of a training batch (`train_batches.weight(batch_idx, batch["present"])`) still
    divides by the window's full count, so a sample that is left out has weight 0 and the others keep theirs. `skipped` holds the
    paths that this process met, `notes` what is worth knowing about the folder.

    Args:
        name: data set, a key of `catalogue.DATASETS`.
        root: folder; None is `data/<name>` under the working folder, where the environment variable DNA_DATA replaces `data`.
        batch: training samples per process and micro-batch.
        eval_batch: samples per evaluation batch; None is `batch`.
        workers: loader processes; 0 loads in the training process.
        toy: read the toy twin of the data set, which is made where it is missing.
        subset: samples of a seeded, class-balanced part of each split; None is all.
        on_error: what an unreadable sample does: end the run with its path, or be skipped and counted.
    """

    layout: ClassVar[str] = ""

    def __init__(
        self,
        name: str,
        root: str | None = None,
        batch: int = 64,
        eval_batch: int | None = None,
        workers: int = 2,
        toy: bool = False,
        subset: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> None:
        super().__init__()
        require_at_least(1, batch=batch, eval_batch=eval_batch, subset=subset)
        require_at_least(0, workers=workers)
        if on_error not in ("raise", "skip"):
            raise DnaError(f"data.on_error {on_error!r}: raise or skip")
        self.name: str = name
        self.root, self.batch, self.eval_batch = root, batch, batch if eval_batch is None else eval_batch
        self.workers, self.toy, self.subset, self.on_error = workers, toy, subset, on_error
        self.seed = 0
        self.skipped: list[str] = []
        self.notes: list[str] = []
        self.predict_input: str | None = None
        self._samples: dict[tuple[str, int], Samples] = {}
        self._resumed: tuple[object, int] = (None, 0)
        self._train_batches: tuple[object, EpochBatches] | None = None

    @property
    def classes(self) -> list[str]:
        """Class names in label order."""
        raise NotImplementedError

    def read(self, split: str) -> Samples:
        """All samples of train, val or test."""
        raise NotImplementedError

    def transform(self) -> dict[str, Any]:
        """The evaluation transform as plain values, as checkpoints and results store it."""
        raise NotImplementedError

    def folder(self) -> Path:
        """The data set's folder; the toy twin is written here where it is asked for and missing.

        Raises:
            DnaError: there is no such folder; the message shows the layout and how to get a toy set.
        """
        root = Path(self.root).expanduser() if self.root else Path(os.environ.get("DNA_DATA", "data")) / self.name
        if self.toy:
            from dna_suite.data.toy import make_twin

            return make_twin(self.name, root.parent / "toy" / self.name)
        if not root.is_dir():
            raise DnaError(
                f"data.root: no folder {root} (data.root or the environment variable DNA_DATA says where data is). Expected:\n"
                f"{self.layout}\nA toy set in this layout: dna data toy {self.name} {root}"
            )
        return root

    def source(self, split: str) -> str:
        """Where a split is read from, for reports."""
        return "package" if not self.layout else split

    def samples(self, split: str) -> Samples:
        """The samples of a split, after `subset`.

        Raises:
            DnaError: the split holds no sample.
        """
        found = self._samples.get((split, self.seed))
        if found is None:
            found = self.read(split)
            if len(found.labels) == 0:
                raise DnaError(f"data set {self.name}: no sample in {split}")
            if self.subset is not None:
                found = found.select(choose_balanced(found.labels, self.subset, self.seed))
            self._samples[split, self.seed] = found
        return found

    def counts(self) -> dict[str, int]:
        """Samples of each split."""
        return {split: len(self.samples(split).labels) for split in SPLITS}

    def prepare_data(self) -> None:
        """Write the toy twin, if it is asked for, before several processes look for it."""
        if self.toy:
            self.folder()

    @property
    def world(self) -> tuple[int, int]:
        """Number of processes and index of this one."""
        return (1, 0) if self.trainer is None else (self.trainer.world_size, self.trainer.global_rank)

    @property
    def accumulate(self) -> int:
        """Micro-batches of one optimiser step."""
        return 1 if self.trainer is None else self.trainer.accumulate_grad_batches

    @property
    def global_batch(self) -> int:
        """Samples of one full optimiser step: batch * processes * accumulation."""
        return self.batch * self.world[0] * self.accumulate

    @property
    def train_batches(self) -> EpochBatches:
        """The training order of this process under the present trainer."""
        if self._train_batches is None or self._train_batches[0] is not self.trainer:
            self._train_batches = (self.trainer, self.order_training())
        return self._train_batches[1]

    def order_training(self) -> EpochBatches:
        """A training order for the present trainer, seed and batch.

        Raises:
            DnaError: the trainer's limit leaves no batch.
        """
        world, rank = self.world
        length, trainer = len(self.samples("train").labels), self.trainer
        whole = EpochBatches(length, self.batch, world=world, rank=rank)
        asked = 1.0 if trainer is None else trainer.limit_train_batches
        limit = limit_batches(len(whole), asked)
        if limit == 0:
            # Lightning would train nothing and report success (Lightning-AI/pytorch-lightning#9785).
            found = f"{length} samples, batch {self.batch}, {world} process(es)"
            raise DnaError(f"no training batch: {found}, trainer.limit_train_batches {asked}")
        return EpochBatches(
            length,
            self.batch,
            seed=self.seed,
            world=world,
            rank=rank,
            accumulate=self.accumulate,
            repeats=self.copies(),
            limit=limit,
            done=self.steps_done,
        )

    def copies(self) -> int:
        """Adjacent copies of each training sample."""
        return 1

    def steps_done(self) -> int:
        """Optimiser steps done, also before Lightning has restored its own count."""
        resumed = self._resumed[1] if self._resumed[0] is self.trainer else 0
        return resumed if self.trainer is None else max(self.trainer.global_step, resumed)

    def state_dict(self) -> dict[str, int]:
        """The only thing that data needs to go on: the optimiser steps done."""
        return {"step": self.steps_done()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Keep the step; Lightning calls this before any loader exists."""
        self._resumed = (self.trainer, state["step"])

    def position(self) -> dict[str, int]:
        """What must be the same for a run to be resumed exactly."""
        return {
            "seed": self.seed,
            "global_batch": self.global_batch,
            "accumulate": self.accumulate,
            "world": self.world[0],
            "length": len(self.samples("train").labels),
        }

    def keyed(self, split: str) -> Dataset[dict[str, Any]]:
        """The split as a data set that is asked by the keys of its sampler."""
        samples: Any = self.samples(split)
        return Seeded(samples, self.seed) if split == "train" else Counted(samples)

    def train_dataloader(self) -> DataLoader:
        """Training batches from the present optimiser step on."""
        self._train_batches = None
        return self.load(self.keyed("train"), leave_out_skipped, batch_sampler=self.train_batches)

    def val_dataloader(self) -> DataLoader:
        """Every validation sample once, in whole batches."""
        return self.load(self.keyed("val"), collate, batch_sampler=self.order_evaluation("val"))

    def test_dataloader(self) -> DataLoader:
        """Every test sample once, in whole batches."""
        return self.load(self.keyed("test"), collate, batch_sampler=self.order_evaluation("test"))

    def order_evaluation(self, split: str) -> EvalBatches:
        """The evaluation order of this process."""
        world, rank = self.world
        return EvalBatches(len(self.samples(split).labels), self.eval_batch, world=world, rank=rank)

    def load(self, dataset: Dataset[dict[str, Any]], collate_fn: Collate, **order: Any) -> DataLoader:
        """A loader over the batches of keys of `batch_sampler`, or over the keys of `sampler` in batches of `batch_size`."""
        return DataLoader(
            dataset,
            num_workers=self.workers,
            collate_fn=collate_fn,
            persistent_workers=self.workers > 0,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=ServeOn(),
            **order,
        )

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move the tensors of a batch; batches are flat dictionaries, so Lightning's walk through them is not needed."""
        return {key: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value for key, value in batch.items()}

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Take the paths of skipped samples out of a batch that a worker made."""
        if isinstance(batch, dict):
            for path in batch.pop("skipped", ()):
                if path not in self.skipped:
                    self.skipped.append(path)
        return batch


def require_at_least(least: int, **values: int | None) -> None:
    """Refuse data keys with a value below `least`; None passes.

    Raises:
        DnaError: the key and its value are named.
    """
    for key, value in values.items():
        if value is not None and value < least:
            raise DnaError(f"data.{key} {value}: at least {least}")


def limit_batches(batches: int, limit: float) -> int:
    """Batches of an epoch under a trainer limit: an integer counts batches, a fraction is a part of them."""
    return min(batches, limit) if isinstance(limit, int) else int(batches * limit)
