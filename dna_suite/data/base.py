"""Data modules: splits, loaders and toy twins that every data set shares."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dna_suite.catalogue import DATASETS
from dna_suite.data.batches import Collate, collate, leave_out_skipped
from dna_suite.data.global_batch import GlobalBatch
from dna_suite.data.order import Counted, EpochBatches, EvalBatches, Seeded
from dna_suite.data.subset import choose_balanced, hold_out
from dna_suite.data.workers import ServeOn
from dna_suite.errors import DnaError

SPLITS = ("train", "val", "test")


class Samples(Protocol):
    """One split of a data set; `labels` [n] int64, one class index per sample."""

    labels: np.ndarray

    def find_problem(self, index: int) -> str | None:
        """What is wrong with the file of a sample, or None."""

    def __getitem__(self, index: int) -> Mapping[str, Any]: ...

    def select(self, indices: np.ndarray) -> Samples:
        """The same data set with these samples only, in this order."""


class Data(LightningDataModule):
    """Splits and loaders of one data set.

    A subclass gives `classes` and `read(split, role)`. Batches are dictionaries of `image` uint8 [n, 3, height, width], `label`
    int64 [n], `index` int64 [n] (place in the split), `counted` bool [n] and the integer `present`, the number of those counted.

    With `on_error: skip` an unreadable sample is left out of its training batch and stays in its evaluation batch as a black
    picture that is not counted. The loss weight of a training batch (`train_batches.weight(batch_idx, batch["present"])`) still
    divides by the window's full count, so a sample that is left out has weight 0 and the others keep theirs. `skipped` holds the
    paths that this process met, `notes` what is worth knowing about the folder.

    `val` is what a run's best checkpoint is chosen by. It is the set's own, or a part of train that is held out, so that `test`
    is looked at once. Each seed holds out another part, so a spread over seeds holds that choice too. Where a run starts from
    weights that another seed trained on the same set, one `holdout_seed` for both keeps `val` unseen.

    Args:
        name: data set, a key of `catalogue.DATASETS`.
        root: folder; None is `data/<name>` under the working folder, where the environment variable DNA_DATA replaces `data`.
        batch: training samples per process and micro-batch.
        eval_batch: samples per evaluation batch; None is `batch`.
        workers: loader processes; 0 loads in the training process.
        toy: read the toy twin of the data set, which is made where it is missing.
        subset: samples of a seeded, class-balanced part of train, after the holdout; None is all. Evaluation is on all samples.
        on_error: what an unreadable sample does: end the run with its path, or be skipped and counted.
        global_batch: samples of an optimiser step that a training run must have: batch * processes * accumulation; None is any.
        holdout: samples (5000) or part (0.1) of train, class-balanced, that serve as val; auto is a tenth where the set has no
            val of its own, else none; null is none, and then a set without a val of its own validates nothing and tests the
            last checkpoint.
        holdout_seed: which part is held out; None is the run's seed.
    """

    layout: ClassVar[str] = ""
    downloads: ClassVar[bool] = False
    one_set: ClassVar[bool] = True
    own_val: ClassVar[bool] = True

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
        global_batch: int | None = None,
        holdout: int | float | Literal["auto"] | None = "auto",
        holdout_seed: int | None = None,
    ) -> None:
        super().__init__()
        require_at_least(1, batch=batch, eval_batch=eval_batch, subset=subset, global_batch=global_batch)
        require_at_least(0, workers=workers, holdout_seed=holdout_seed)
        if not (holdout in ("auto", None) or (isinstance(holdout, int) and holdout >= 1) or 0 < float(holdout) < 1):
            raise DnaError(f"data.holdout {holdout}: samples from 1, a part of train between 0 and 1, auto or null")
        if on_error not in ("raise", "skip"):
            raise DnaError(f"data.on_error {on_error!r}: raise or skip")
        self.name: str = name
        self.root, self.batch, self.eval_batch = root, batch, batch if eval_batch is None else eval_batch
        self.workers, self.toy, self.subset, self.on_error = workers, toy, subset, on_error
        self.wanted_batch = global_batch
        self.holdout: float | None = (None if self.own_val else 0.1) if isinstance(holdout, str) else holdout
        self.holdout_seed = holdout_seed
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

    def read(self, split: str, role: str) -> Samples:
        """All samples of a split as published.

        Args:
            split: where they come from: train, val or test.
            role: what they serve as, which decides their transform: train, val or test.
        """
        raise NotImplementedError

    def transform(self) -> dict[str, Any]:
        """The evaluation transform as plain values, as checkpoints and results store it."""
        raise NotImplementedError

    def folder(self) -> Path:
        """The data set's folder; the toy twin is written here where it is asked for and missing.

        Raises:
            DnaError: there is no such folder; the message shows the layout and how to get a toy set.
        """
        if self.toy:
            from dna_suite.data.toy import make_twin

            parent = Path(self.root).expanduser().parent if self.root else usual_folder()
            return make_twin(self.name, parent / "toy" / self.name)
        root = Path(self.root).expanduser() if self.root else self.default_root()
        if not root.is_dir():
            place = "data.root or the environment variable DNA_DATA says where data is"
            raise DnaError(f"data.root: no folder {root} ({place}). {self.ways_to_get(root)}")
        return root

    def ways_to_get(self, root: Path) -> str:
        """What a folder without the data set should hold, and how to fill it."""
        download = f"\nTo download it: dna data download {self.name} {root}" if self.downloads else ""
        return f"Expected:\n{self.layout}{download}\nA toy set in this layout: dna data toy {self.name} {root}"

    def default_root(self) -> Path:
        """The folder where data.root is not given."""
        return usual_folder() / self.name

    def origin(self, split: str) -> str:
        """What a split as published is read from."""
        return split if self.layout else f"package, {split}"

    def source(self, split: str) -> str:
        """Where the samples of a split come from, for reports."""
        if split != "val" or self.holdout is None:
            return self.origin(split)
        return f"{self.origin('train')} (holdout {len(self.samples('val').labels)}, seed {self.split_seed})"

    @property
    def split_seed(self) -> int:
        """The seed of the holdout."""
        return self.seed if self.holdout_seed is None else self.holdout_seed

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that there are: without val where the set has none and nothing is held out."""
        return SPLITS if self.own_val or self.holdout is not None else ("train", "test")

    def samples(self, split: str) -> Samples:
        """The samples of a split: of train what the holdout leaves, then its subset.

        Raises:
            DnaError: the split holds no sample, or the holdout is too large.
        """
        found = self._samples.get((split, self.seed))
        if found is None:
            found = self.divide(split)
            if split == "train" and self.subset is not None:
                found = found.select(choose_balanced(found.labels, self.subset, self.seed))
            self._samples[split, self.seed] = found
        return found

    def note(self, text: str, tell: Callable[[str], None] = rank_zero_info) -> None:
        """Say something once, and keep it for reports."""
        if text not in self.notes:
            self.notes.append(text)
            tell(text)

    def divide(self, split: str) -> Samples:
        """The samples of a split after the holdout."""
        if split not in self.splits:
            raise DnaError(f"data set {self.name} has no val part of its own: data.holdout takes one from train")
        part = None if split == "test" else self.holdout
        found = self.read(split if part is None else "train", split)
        if len(found.labels) == 0:
            raise DnaError(f"data set {self.name}: no sample in {split}")
        if self.one_set and not self.toy:
            self.compare_count(split if part is None else "train", len(found.labels))
        if "val" not in self.splits:
            self.note("nothing is held out of train: nothing is validated, and the last checkpoint is the run's")
        if part is None:
            return found
        rest, chosen = hold_out(found.labels, part, self.split_seed)
        return found.select(chosen if split == "val" else rest)

    def compare_count(self, split: str, found: int) -> None:
        """Note a number of samples that is not the published one."""
        sets = next((sets for sets in DATASETS.values() if self.name in sets), {})
        published = sets[self.name].counts.get(split) if sets else None
        if published not in (None, found):
            self.note(f"{split} has {found:,} samples, {self.name} as published {published:,}")

    def counts(self) -> dict[str, int]:
        """Samples of each split."""
        return {split: len(self.samples(split).labels) for split in self.splits}

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
        return GlobalBatch(self.batch, self.world[0], self.accumulate).samples

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

    def val_dataloader(self) -> DataLoader | list[DataLoader]:
        """Every validation sample once, in whole batches; no loader where there is no validation part."""
        if "val" not in self.splits and self.trainer is not None and self.trainer.state.fn != TrainerFn.VALIDATING:
            return []
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


def usual_folder() -> Path:
    """The folder of data sets: the environment variable DNA_DATA, else `data` under the working folder."""
    return Path(os.environ.get("DNA_DATA", "data"))


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
