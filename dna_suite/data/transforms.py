"""Pictures uint8 [3, height, width] to the model's size: the evaluation crop, and the training crop with its augmentations."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from dna_suite.data.shifts import OPERATIONS
from dna_suite.errors import DnaError


def resize_side(size: int, crop_ratio: float) -> int:
    """Short side before the centre crop: floor(size / crop_ratio); 248 for 224 and 0.9, 256 for 0.875."""
    return math.floor(size / crop_ratio)


def resize(image: Tensor, height: int, width: int) -> Tensor:
    """A picture uint8 [3, h, w] at another size, bicubic with antialiasing, rounded and clamped to uint8.

    The result is channels-last in memory: the kernel is fastest so, and a batch of it costs the least to copy.
    """
    # As a view with the stride of a batch: torch takes image[None] for channels-first and turns the pixels round.
    batch = image.permute(1, 2, 0).contiguous()[None].permute(0, 3, 1, 2)
    return interpolate(batch, size=(height, width), mode="bicubic", antialias=True)[0]


def resize_with_pillow(image: Tensor, height: int, width: int) -> Tensor:
    """A picture uint8 [3, h, w] at another size as Pillow computes it: within 2 levels of `resize`, four times as slow."""
    from PIL import Image

    picture = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


RESIZES = {"torch": resize, "pil": resize_with_pillow}


class CentreCrop:
    """The evaluation transform: short side to floor(size / crop_ratio), then the centre square of `size` pixels.

    The long side is truncated and the corner rounded, as torchvision and timm do it; with the backend `pil` pixels are timm's.

    Args:
        size: side of the result, pixels.
        crop_ratio: size / short side, at most 1.
        backend: what resizes, torch or pil.
    """

    def __init__(self, size: int, crop_ratio: float, backend: str = "torch") -> None:
        self.size, self.short, self.resize = size, resize_side(size, crop_ratio), RESIZES[backend]

    def __call__(self, image: Tensor) -> Tensor:
        """A picture uint8 [3, height, width] as uint8 [3, size, size]."""
        height, width = image.shape[-2:]
        if height <= width:
            height, width = self.short, int(self.short * width / height)
        else:
            height, width = int(self.short * height / width), self.short
        image = self.resize(image, height, width)
        top, left = round((height - self.size) / 2), round((width - self.size) / 2)
        return image[:, top : top + self.size, left : left + self.size]


class TrainCrop:
    """The training transform: a random part resized to `size`, a flip, then RandAugment or colour jitter.

    All draws come from Python's `random` and numpy's global state, which the data set seeds for each sample.

    Args:
        size: side of the result, pixels.
        scale: area of the part, as a part of the picture.
        ratio: width / height of the part.
        flip: probability of a horizontal flip.
        augment: RandAugment policy in timm's notation, or none.
        color_jitter: strength of brightness, contrast and saturation jitter, used where `augment` is none.
        mean: colour that RandAugment fills with where a picture was moved away, 0 to 1.

    Raises:
        DnaError: the policy is not understood.
    """

    def __init__(
        self,
        size: int,
        scale: Sequence[float],
        ratio: Sequence[float],
        flip: float,
        augment: str,
        color_jitter: float,
        mean: Sequence[float],
    ) -> None:
        self.size, self.scale, self.ratio, self.flip = size, scale, ratio, flip
        self.augment = None if augment == "none" else build_rand_augment(augment, size, mean)
        self.color_jitter = color_jitter

    def __call__(self, image: Tensor) -> Tensor:
        """A picture uint8 [3, height, width] as uint8 [3, size, size]."""
        top, left, height, width = draw_box(image.shape[-2], image.shape[-1], self.scale, self.ratio)
        image = resize(image[:, top : top + height, left : left + width], self.size, self.size)
        if random.random() < self.flip:
            image = image.flip(-1)
        if self.augment is not None:
            from PIL import Image

            picture = self.augment(Image.fromarray(image.permute(1, 2, 0).numpy()))
            return torch.from_numpy(np.array(picture)).permute(2, 0, 1)
        return jitter_color(image, self.color_jitter) if self.color_jitter else image


def draw_box(height: int, width: int, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
    """A random part of a picture: area uniform in `scale`, log of the aspect uniform in `ratio`, ten tries, else the centre.

    Returns:
        top, left, height, width in pixels.

    Source: Szegedy et al. 2015 section 6; rounding and order of draws as in timm's RandomResizedCropAndInterpolation.
    """
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(10):
        area = random.uniform(*scale) * height * width
        aspect = math.exp(random.uniform(low, high))
        box_width, box_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if box_width <= width and box_height <= height:
            top = random.randint(0, height - box_height)
            return top, random.randint(0, width - box_width), box_height, box_width
    aspect = min(max(width / height, min(ratio)), max(ratio))
    box_width, box_height = min(width, round(height * aspect)), min(height, round(width / aspect))
    return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width


def jitter_color(image: Tensor, strength: float) -> Tensor:
    """Brightness, contrast and saturation, each multiplied by a factor from 1 - strength to 1 + strength, in random order."""
    from torchvision.transforms.v2 import functional

    changes = [functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation]
    random.shuffle(changes)
    for change in changes:
        image = change(image, random.uniform(max(0.0, 1 - strength), 1 + strength))
    return image


def build_rand_augment(policy: str, size: int, mean: Sequence[float]) -> Any:
    """timm's RandAugment for pictures of `size` pixels, bicubic, with the mean colour where a picture was moved away.

    Shears and translations are our faster ones. timm's PosterizeIncreasing can ask for 0 bits, which Pillow 13 refuses and older
    ones turned black; here at least 1 bit stays.

    Raises:
        DnaError: the policy is not understood.
    """
    from PIL import Image
    from timm.data.auto_augment import rand_augment_transform

    # What timm's create_transform hands over: translations of at most 45 % of the side, the mean colour, one interpolation.
    settings = {
        "translate_const": int(size * 0.45),
        "img_mean": tuple(round(255 * value) for value in mean),
        "interpolation": Image.Resampling.BICUBIC,
    }
    try:
        if not policy.startswith("rand"):
            raise ValueError("a RandAugment policy starts with rand")
        augment = rand_augment_transform(policy, settings)
    except (AssertionError, ValueError, KeyError, NotImplementedError) as problem:
        known = "none, or a RandAugment policy such as rand-m9-mstd0.5-inc1"
        raise DnaError(f"data.augment {policy!r}: {known} ({problem})") from None
    for operation in augment.ops:
        keep_one_bit(operation)
        operation.aug_fn = OPERATIONS.get(operation.name, operation.aug_fn)
    return augment


def keep_one_bit(operation: Any) -> None:
    """Let one of timm's RandAugment operations ask for at least 1 bit, if it is a posterize."""
    if operation.name.startswith("Posterize"):
        operation.level_fn = KeepOneBit(operation.level_fn)


class KeepOneBit:
    """The bits that a posterize operation keeps, at least one."""

    def __init__(self, level: Any) -> None:
        self.level = level

    def __call__(self, magnitude: float, settings: Any) -> tuple[int]:
        """The operation's arguments for a magnitude from 0 to 10."""
        return (max(1, self.level(magnitude, settings)[0]),)
