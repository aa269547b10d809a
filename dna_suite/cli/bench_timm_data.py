"""timm's own loaders with a recipe's augmentations: the side that `dna bench data` measures against."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from timm.data import ImageDataset, create_loader
from timm.data.distributed_sampler import RepeatAugSampler
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from dna_suite.data.images import ImageData
from dna_suite.data.transforms import keep_one_bit


class Pictures(Dataset[tuple[Any, int]]):
    """Pictures in memory as torchvision's data sets hand them out: a Pillow image, then the transform.

    Args:
        pictures: [n, height, width, 3] uint8.
        labels: [n] class indices.
    """

    def __init__(self, pictures: np.ndarray, labels: np.ndarray) -> None:
        self.pictures, self.labels = pictures, labels
        self.transform: Any = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(Image.fromarray(self.pictures[index])), int(self.labels[index])


class SharedFlip:
    """A horizontal flip that draws from Python's `random`, as the suite's does; torchvision's draws from torch.

    Args:
        probability: of a flip.
    """

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def __call__(self, image: Image.Image) -> Image.Image:
        """The picture, or its mirror image."""
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < self.probability else image


def load_folder(data: ImageData, root: Path, training: bool) -> DataLoader:
    """The loader inside timm's `create_loader`, what it does on the host: uint8 batches, unnormalised, nothing erased.

    Args:
        data: says which augmentations, batch and repeats.
        root: class folders of one split.
        training: training or evaluation.
    """
    dataset = ImageDataset(str(root))
    loader: DataLoader = create_loader(dataset, **settings(data, training)).loader
    for operation in operations(dataset.transform):
        keep_one_bit(operation)
    if not training or data.repeats == 1:
        return loader
    # create_loader hands its sampler of repeats out to several processes only.
    sampler = RepeatAugSampler(dataset, num_replicas=1, rank=0, num_repeats=data.repeats, selected_round=0)
    return DataLoader(dataset, data.batch, sampler=sampler, collate_fn=loader.collate_fn, drop_last=True)


def load_pictures(pictures: np.ndarray, labels: np.ndarray, batch: int, shift: int, flip: float) -> DataLoader:
    """The loader inside timm's `create_loader` over small pictures in memory: padded, cropped at their own size, flipped.

    Args:
        pictures: [n, height, width, 3] uint8.
        labels: [n] class indices.
        batch: samples per batch.
        shift: padding on each side, pixels.
        flip: probability of a horizontal flip.
    """
    dataset, side = Pictures(pictures, labels), pictures.shape[1]
    loader = create_loader(dataset, (3, side, side), batch, is_training=True, num_workers=0, device=torch.device("cpu"))  # type: ignore[arg-type]
    # The last of timm's steps makes what its collate takes; which one it is depends on timm's version.
    steps = [transforms.RandomCrop(side, padding=shift), transforms.RandomHorizontalFlip(flip), dataset.transform.transforms[-1]]
    dataset.transform = transforms.Compose(steps)
    inner: DataLoader = loader.loader
    return inner


def settings(data: ImageData, training: bool) -> dict[str, Any]:
    """The arguments of `create_loader` that say what a data module says."""
    shared = {
        "input_size": (3, data.size, data.size),
        "batch_size": data.batch,
        "interpolation": "bicubic",
        "mean": data.mean,
        "std": data.std,
        "num_workers": 0,
        "device": torch.device("cpu"),
    }
    if not training:
        return {**shared, "crop_pct": data.crop_ratio}
    return {
        **shared,
        "is_training": True,
        "scale": data.scale,
        "ratio": data.ratio,
        "hflip": data.flip,
        "color_jitter": data.color_jitter,
        "auto_augment": None if data.augment == "none" else data.augment,
        "re_prob": data.erase,
    }


def operations(transform: Any) -> list[Any]:
    """The operations of the RandAugment in a chain of transforms."""
    return [operation for step in transform.transforms for operation in getattr(step, "ops", ())]


def share_flip(transform: Any) -> None:
    """Let a chain of transforms draw its flip where the suite draws it, so that the same seed gives the same picture."""
    transform.transforms = [
        SharedFlip(step.p) if isinstance(step, transforms.RandomHorizontalFlip) else step for step in transform.transforms
    ]
