"""Data modules of single pictures: size, evaluation crop, normalisation, augmentation, prediction."""

from __future__ import annotations

from typing import Any, Literal

from torch.utils.data import DataLoader

from dna_suite.data.base import Data, require_at_least
from dna_suite.data.batches import collate
from dna_suite.data.order import Counted, EvalBatches
from dna_suite.data.samples import Transform
from dna_suite.errors import DnaError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class ImageData(Data):
    """What data sets of single pictures share: size, evaluation crop, normalisation, augmentation.

    Normalising and erasing belong to the device and happen in the task.

    Args:
        name: data set, a key of `catalogue.DATASETS`.
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
        eval_backend: what resizes evaluation pictures: torch, or pil, which is bit-equal to timm for reference tables and slower.
        data: the other arguments of `Data`.
    """

    def __init__(
        self,
        name: str,
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
        eval_backend: Literal["torch", "pil"] = "torch",
        **data: Any,
    ) -> None:
        super().__init__(name, **data)
        require_at_least(1, size=size, repeats=repeats, max_pixels=max_pixels)
        if not 0 < crop_ratio <= 1:
            raise DnaError(f"data.crop_ratio {crop_ratio}: above 0, at most 1")
        for key, value in {"flip": flip, "erase": erase}.items():
            if not 0 <= value <= 1:
                raise DnaError(f"data.{key} {value}: a probability, 0 to 1")
        if eval_backend not in ("torch", "pil"):
            raise DnaError(f"data.eval_backend {eval_backend!r}: torch or pil")
        if min(std) <= 0:
            raise DnaError(f"data.std {list(std)}: every deviation is above 0")
        self.size, self.crop_ratio, self.mean, self.std = size, crop_ratio, tuple(mean), tuple(std)
        self.augment, self.scale, self.ratio, self.flip = augment, tuple(scale), tuple(ratio), flip
        self.color_jitter, self.erase, self.repeats, self.max_pixels = color_jitter, erase, repeats, max_pixels
        self.eval_backend = eval_backend

    def transform_as(self, role: str) -> Transform:
        """What turns a decoded picture into one of the model's size: random in training, the evaluation crop elsewhere."""
        from dna_suite.data.transforms import CentreCrop, TrainCrop

        if role == "train":
            return TrainCrop(self.size, self.scale, self.ratio, self.flip, self.augment, self.color_jitter, self.mean)
        return CentreCrop(self.size, self.crop_ratio, self.eval_backend)

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
            "backend": self.eval_backend,
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

        if self.predict_input is None:
            raise DnaError("predict: --input FOLDER_OR_FILE says which pictures")
        listing = PictureListing(self.predict_input, self.transform_as("predict"), self.size, self.max_pixels, self.on_error)
        world, rank = self.world
        batches = EvalBatches(len(listing), self.eval_batch, world=world, rank=rank)
        # Lightning takes predicting loaders apart and warns of batch samplers that are not torch's own. All batches but the last
        # are full, so torch's batches of these keys are the same ones.
        keys = [key for batch in batches for key in batch]
        return self.load(Counted(listing), collate, sampler=keys, batch_size=self.eval_batch)
