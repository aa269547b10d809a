"""Random erasing of normalised batches, on the device."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def erase(
    images: Tensor,
    probability: float,
    generator: np.random.Generator,
    area: tuple[float, float] = (0.02, 1 / 3),
    aspect: tuple[float, float] = (0.3, 1 / 0.3),
) -> Tensor:
    """Fill a random box of some images with normal noise, one draw per pixel and channel ("pixel" mode), in place.

    Args:
        images: [n, channels, height, width], normalised to deviation 1; changed.
        probability: of each image to be erased.
        generator: where the boxes and the seed of the noise come from.
        area: of the box, as a part of the image, uniform.
        aspect: height / width of the box, its logarithm uniform.

    Returns:
        The same images.

    Source: Zhong et al. 2020; defaults and rounding of timm's RandomErasing.
    """
    noise = torch.Generator(images.device).manual_seed(int(generator.integers(2**63)))
    channels, height, width = images.shape[1:]
    for image, draw in zip(images, generator.random(len(images)), strict=True):
        box = draw_box(height, width, area, aspect, generator) if draw < probability else None
        if box is not None:
            top, left, tall, wide = box
            size = (channels, tall, wide)
            image[:, top : top + tall, left : left + wide] = torch.randn(size, generator=noise, device=images.device)
    return images


def draw_box(
    height: int, width: int, area: tuple[float, float], aspect: tuple[float, float], generator: np.random.Generator
) -> tuple[int, int, int, int] | None:
    """A box inside the image as top, left, height, width; None where ten tries gave none that fits."""
    for _ in range(10):
        pixels = generator.uniform(*area) * height * width
        ratio = math.exp(generator.uniform(math.log(aspect[0]), math.log(aspect[1])))
        tall, wide = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if tall < height and wide < width:
            return int(generator.integers(height - tall + 1)), int(generator.integers(width - wide + 1)), tall, wide
    return None
