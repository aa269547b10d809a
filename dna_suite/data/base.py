"""Data modules: splits, loaders and toy twins that every data set shares, and what all picture data sets have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset

from dna_suite.data.batches import Collate, collate, leave_out_skipped
from dna_suite.data.order import Counted, EpochBatches, EvalBatches, Seeded
from dna_suite.data.subset import choose_balanced
from dna_suite.data.workers import ServeOn
from dna_suite.errors import DnaError

SPLITS = ("train", "val", "test")
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


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
        """A training order for the present trainer, seed and batch."""
        world, rank = self.world
        length, trainer = len(self.samples("train").labels), self.trainer
        whole = EpochBatches(length, self.batch, world=world, rank=rank)
        limit = None if trainer is None else limit_batches(len(whole), trainer.limit_train_batches)
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

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Take the paths of skipped samples out of a batch that a worker made."""
        if isinstance(batch, dict):
            for path in batch.pop("skipped", ()):
                if path not in self.skipped:
                    self.skipped.append(path)
        return batch


class ImageData(Data):
    """What data sets of single pictures share: size, evaluation crop, normalisation, augmentation.

    The arguments that `Data` has mean the same here. Normalising and erasing belong to the device and happen in the task.

    Args:
        size: side of the square pictures that the model sees, pixels.
        crop_ratio: evaluation resizes the short side to floor(size / crop_ratio) and crops the centre.
        mean: channel means that the task subtracts, on the scale 0 to 1.
        std: channel deviations that the task divides by, on the scale 0 to 1.
        augment: RandAugment policy in timm's notation, such as rand-m9-mstd0.5-inc1, or none.
        scale: area of the training crop, parts of the picture.
        ratio: width / height of the training crop.
        flip: probability of a horizontal flip.
        color_jitter: strength of brightness, contrast and saturation jitter; used with augment: none only, as timm does.
        erase: probability of random erasing.
        repeats: copies of each sample in a training batch (repeated augmentation).
        max_pixels: a picture with more is refused before it is decoded.
    """

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
        size: int = 224,
        crop_ratio: float = 0.9,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
        augment: str = "none",
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
        color_jitter: float = 0.0,
        erase: float = 0.0,
        repeats: int = 1,
        max_pixels: int = 178_956_970,
    ) -> None:
        super().__init__(name, root, batch, eval_batch, workers, toy, subset, on_error)
        require_at_least(1, size=size, repeats=repeats, max_pixels=max_pixels)
        if not 0 < crop_ratio <= 1:
            raise DnaError(f"data.crop_ratio {crop_ratio}: above 0, at most 1")
        for key, value in {"flip": flip, "erase": erase}.items():
            if not 0 <= value <= 1:
                raise DnaError(f"data.{key} {value}: a probability, 0 to 1")
        if min(std) <= 0:
            raise DnaError(f"data.std {list(std)}: every deviation is above 0")
        self.size, self.crop_ratio, self.mean, self.std = size, crop_ratio, tuple(mean), tuple(std)
        self.augment, self.scale, self.ratio, self.flip = augment, tuple(scale), tuple(ratio), flip
        self.color_jitter, self.erase, self.repeats, self.max_pixels = color_jitter, erase, repeats, max_pixels

    def copies(self) -> int:
        """Adjacent copies of each training sample."""
        return self.repeats

    def transform(self) -> dict[str, Any]:
        """The evaluation transform as plain values, as checkpoints and results store it."""
        from dna_suite.data.transforms import resize_side

        return {
            "resize": resize_side(self.size, self.crop_ratio),
            "crop": self.size,
            "crop_ratio": self.crop_ratio,
            "interpolation": "bicubic",
            "antialias": True,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def augmentation(self) -> dict[str, Any]:
        """What happens to training pictures, as plain values."""
        keys = ("scale", "ratio", "flip", "augment", "color_jitter", "erase", "repeats")
        return {key: getattr(self, key) for key in keys}

    def predict_dataloader(self) -> DataLoader:
        """Pictures under `predict_input`: batches of image, path and counted, with the evaluation transform."""
        from dna_suite.data.listing import PictureListing
        from dna_suite.data.transforms import CentreCrop

        if self.predict_input is None:
            raise DnaError("predict: --input FOLDER_OR_FILE says which pictures")
        listing = PictureListing(
            self.predict_input, CentreCrop(self.size, self.crop_ratio), self.size, self.max_pixels, self.on_error
        )
        world, rank = self.world
        batches = EvalBatches(len(listing), self.eval_batch, world=world, rank=rank)
        # Lightning takes predicting loaders apart and warns of batch samplers that are not torch's own. All batches but the last
        # are full, so torch's batches of these keys are the same ones.
        keys = [key for batch in batches for key in batch]
        return self.load(Counted(listing), collate, sampler=keys, batch_size=self.eval_batch)


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
