"""The 1,797 handwritten digits that the package ships, resident in memory and scaled once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.functional import interpolate
from torch.utils.data import Dataset

from dna_suite.data.base import require_at_least
from dna_suite.data.images import ImageData
from dna_suite.data.order import mix_bits
from dna_suite.data.resident import MovedBatches, PlainBatches, Resident
from dna_suite.data.subset import count_turns

FILE = Path(__file__).with_name("digits.npz")
SPLIT_SIZES = {"val": 180, "test": 360, "train": 1257}


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """The digits as recorded: ink [1797, 8, 8] uint8 from 0 to 16, and labels [1797] int64 from 0 to 9.

    Source: UCI Optical Recognition of Handwritten Digits, its test part (see DIGITS.md).
    """
    with np.load(FILE, allow_pickle=False) as file:
        return file["ink"], file["label"].astype(np.int64)


def split_digits(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Indices of train (1257), val (180) and test (360), ascending; each class has its share of each split to within one.

    The order inside a class is that of a hash of the index, so that it depends on no library's random numbers.
    """
    order = np.argsort(mix_bits(np.arange(len(labels), dtype=np.uint64)))
    by_class = order[np.argsort(labels[order], kind="stable")]
    turns, sizes = count_turns(labels[by_class])
    dealt = by_class[np.argsort((turns + 0.5) / sizes, kind="stable")]
    bounds = np.cumsum(list(SPLIT_SIZES.values()))
    return {split: np.sort(part) for split, part in zip(SPLIT_SIZES, np.split(dealt, bounds[:-1]), strict=True)}


class Digits(ImageData):
    """Handwritten digits, 1257 / 180 / 360 for train / val / test: real pictures that need no download.

    They come with the package, so `root` and `on_error` have no effect, and the toy twin is the set itself.

    Args:
        name: digits.
        root: not used.
        batch: training samples per process and micro-batch.
        eval_batch: samples per evaluation batch; None is `batch`.
        workers: loader processes; the set is resident, so 0 is fastest.
        toy: no effect: the set is small already.
        subset: samples of a seeded, class-balanced part of train, after the holdout; None is all.
        on_error: not used.
        size: side that the 8 x 8 pictures are scaled to, pixels.
        shift: training pictures move by up to this many pixels along each axis.
        mean: channel means that the task subtracts, on the scale 0 to 1.
        std: channel deviations that the task divides by, on the scale 0 to 1.
        erase: probability of random erasing.
        repeats: copies of each sample in a training batch (repeated augmentation).
    """

    def __init__(
        self,
        name: str = "digits",
        root: str | None = None,
        batch: int = 64,
        eval_batch: int | None = None,
        workers: int = 0,
        toy: bool = False,
        subset: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        size: int = 32,
        shift: int = 3,
        mean: tuple[float, float, float] = (0.308, 0.308, 0.308),
        std: tuple[float, float, float] = (0.35, 0.35, 0.35),
        erase: float = 0.0,
        repeats: int = 1,
        global_batch: int | None = None,
        holdout: int | float | Literal["auto"] | None = "auto",
        holdout_seed: int | None = None,
    ) -> None:
        super().__init__(
            name,
            root=root,
            batch=batch,
            eval_batch=eval_batch,
            workers=workers,
            toy=toy,
            subset=subset,
            on_error=on_error,
            size=size,
            crop_ratio=1.0,
            mean=mean,
            std=std,
            flip=0.0,
            erase=erase,
            repeats=repeats,
            global_batch=global_batch,
            holdout=holdout,
            holdout_seed=holdout_seed,
        )
        require_at_least(0, shift=shift)
        self.shift = shift

    def augmentation(self) -> dict[str, Any]:
        """What happens to training pictures, as plain values."""
        return {"shift": self.shift, "erase": self.erase, "repeats": self.repeats}

    @property
    def classes(self) -> list[str]:
        """The ten digits."""
        return [str(digit) for digit in range(10)]

    def prepare_data(self) -> None:
        """Nothing to do: the set ships with the package."""

    def read(self, split: str, role: str) -> Resident:
        """All samples of train, val or test, scaled to `size`."""
        ink, labels = read_digits()
        chosen = split_digits(labels)[split]
        return Resident(scale_digits(ink[chosen], self.size)[:, None], labels[chosen])

    def keyed(self, split: str) -> Dataset[dict[str, Any]]:
        """The split as a data set that hands over whole batches."""
        samples = self.samples(split)
        assert isinstance(samples, Resident)
        return MovedBatches(samples, self.seed, self.shift) if split == "train" else PlainBatches(samples)


def scale_digits(ink: np.ndarray, size: int) -> np.ndarray:
    """Ink [n, 8, 8] from 0 to 16 as grey levels [n, size, size] uint8, bicubic."""
    levels = torch.from_numpy(ink).float().mul(255 / 16)[:, None]
    scaled = interpolate(levels, size=(size, size), mode="bicubic", antialias=True)
    return scaled[:, 0].round().clamp(0, 255).to(torch.uint8).numpy()
