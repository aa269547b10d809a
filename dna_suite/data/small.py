"""Data modules of small pictures: the whole set is in memory, and at its own size a batch is gathered at once."""

from __future__ import annotations

from typing import Any, ClassVar

from torch.utils.data import Dataset

from dna_suite.data.base import require_at_least
from dna_suite.data.images import IMAGENET_MEAN, IMAGENET_STD, ImageData
from dna_suite.data.order import Counted, Seeded
from dna_suite.data.resident import MovedBatches, PlainBatches, Resident, Transformed
from dna_suite.errors import DnaError


class SmallPictures(ImageData):
    """What data sets of small pictures share; each says its own size, normalisation, shift and flip.

    At the set's own size a training picture is moved by up to `shift` pixels and flipped, in whole batches (`MovedBatches`). With
    another size, `augment`, `color_jitter`, `scale` or `ratio` each picture goes through the random crop of large pictures by
    itself. Evaluation takes the pictures as they are at their own size with crop_ratio 1, else the evaluation crop.

    Args:
        name: data set, a key of `catalogue.DATASETS`.
        workers: loader processes; at the set's own size 0 is fastest.
        size: side of the square pictures that the model sees, pixels; None is the set's own.
        crop_ratio: evaluation resizes to floor(size / crop_ratio) and crops the centre; None is 1 at the own size, else 0.9.
        mean: channel means that the task subtracts, on the scale 0 to 1; None is the set's own.
        std: channel deviations that the task divides by, on the scale 0 to 1; None is the set's own.
        shift: training pictures move by up to this many pixels along each axis; None is the set's own. At the own size only.
        scale: area of the training crop, parts of the picture; None is no crop at the own size, else 0.08 to 1.
        ratio: width / height of the training crop; None is no crop at the own size, else 3/4 to 4/3.
        flip: probability of a horizontal flip; None is the set's own.
        images: the other arguments of `ImageData`.

    Raises:
        DnaError: a value is out of range, or `shift` is given where pictures are cropped.
    """

    own_size: ClassVar[int]
    own_mean: ClassVar[tuple[float, float, float]] = IMAGENET_MEAN
    own_std: ClassVar[tuple[float, float, float]] = IMAGENET_STD
    own_shift: ClassVar[int]
    own_flip: ClassVar[float] = 0.5

    def __init__(
        self,
        name: str,
        workers: int = 0,
        size: int | None = None,
        crop_ratio: float | None = None,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        augment: str = "none",
        shift: int | None = None,
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] | None = None,
        flip: float | None = None,
        color_jitter: float = 0.0,
        **images: Any,
    ) -> None:
        own = size in (None, self.own_size)
        super().__init__(
            name,
            workers=workers,
            size=self.own_size if size is None else size,
            crop_ratio=(1.0 if own else 0.9) if crop_ratio is None else crop_ratio,
            mean=mean or self.own_mean,
            std=std or self.own_std,
            augment=augment,
            scale=scale or (0.08, 1.0),
            ratio=ratio or (3 / 4, 4 / 3),
            flip=self.own_flip if flip is None else flip,
            color_jitter=color_jitter,
            **images,
        )
        require_at_least(0, shift=shift)
        cropping = {"augment": augment != "none", "color_jitter": color_jitter > 0, "scale": scale, "ratio": ratio}
        reasons = [f"data.size {size}"] * (not own) + [f"data.{key}" for key, given in cropping.items() if given]
        if reasons and shift is not None:
            raise DnaError(f"data.shift {shift}: with {reasons[0]} pictures are cropped, not moved: data.scale says how far")
        self.moved = not reasons
        self.shift = self.own_shift if shift is None else shift
        self.plain = own and self.crop_ratio == 1

    def in_batches(self, role: str) -> bool:
        """Whether the pictures of train, val or test are gathered in whole batches."""
        return self.moved if role == "train" else self.plain

    def augmentation(self) -> dict[str, Any]:
        """What happens to training pictures, as plain values."""
        if not self.moved:
            return {"gathered": "one by one", **super().augmentation()}
        keys = ("shift", "flip", "erase", "repeats")
        return {"gathered": "in whole batches", **{key: getattr(self, key) for key in keys}}

    def keyed(self, split: str) -> Dataset[dict[str, Any]]:
        """The split as a data set that is asked by the keys of its sampler, for whole batches where that can be."""
        samples = self.samples(split)
        if not isinstance(samples, Resident):
            return super().keyed(split)
        if self.in_batches(split):
            return MovedBatches(samples, self.seed, self.shift, self.flip) if split == "train" else PlainBatches(samples)
        one_by_one = Transformed(samples, self.transform_as(split))
        return Seeded(one_by_one, self.seed) if split == "train" else Counted(one_by_one)
