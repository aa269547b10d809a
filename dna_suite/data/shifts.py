"""Shears and translations of a picture along one axis, with Pillow's pixels in a third of its time.

Pillow takes 16 neighbours of each pixel for any affine map. Where a map moves whole rows or whole columns, 4 of them have a
weight, and the weights are the same along a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from PIL import Image


def shear_x(image: Image.Image, factor: float, **settings: Any) -> Image.Image:
    """Row y moves by factor * (y + 0.5) pixels; `settings` as `shift` takes them."""
    return shift(image, factor * (np.arange(image.height) + 0.5), **settings)


def shear_y(image: Image.Image, factor: float, **settings: Any) -> Image.Image:
    """Column x moves by factor * (x + 0.5) pixels; `settings` as `shift` takes them."""
    return shift(image, factor * (np.arange(image.width) + 0.5), columns=True, **settings)


def translate_x_rel(image: Image.Image, part: float, **settings: Any) -> Image.Image:
    """Every row moves by a part of the width; `settings` as `shift` takes them."""
    return shift(image, np.full(image.height, part * image.width), **settings)


def translate_y_rel(image: Image.Image, part: float, **settings: Any) -> Image.Image:
    """Every column moves by a part of the height; `settings` as `shift` takes them."""
    return shift(image, np.full(image.width, part * image.height), columns=True, **settings)


def translate_x(image: Image.Image, pixels: float, **settings: Any) -> Image.Image:
    """Every row moves by a number of pixels; `settings` as `shift` takes them."""
    return shift(image, np.full(image.height, float(pixels)), **settings)


def translate_y(image: Image.Image, pixels: float, **settings: Any) -> Image.Image:
    """Every column moves by a number of pixels; `settings` as `shift` takes them."""
    return shift(image, np.full(image.width, float(pixels)), columns=True, **settings)


ROUNDING = np.float32(2.0**-10)
# By the names of timm's RandAugment operations.
OPERATIONS: dict[str, Callable[..., Image.Image]] = {
    "ShearX": shear_x,
    "ShearY": shear_y,
    "TranslateX": translate_x,
    "TranslateY": translate_y,
    "TranslateXRel": translate_x_rel,
    "TranslateYRel": translate_y_rel,
}


def shift(
    image: Image.Image,
    distances: np.ndarray,
    fillcolor: tuple[int, int, int],
    resample: Image.Resampling = Image.Resampling.BICUBIC,
    columns: bool = False,
) -> Image.Image:
    """An RGB picture whose rows are moved to the left, each by its own distance.

    Args:
        image: the picture.
        distances: one for each row, pixels; negative ones move to the right.
        fillcolor: what moves in.
        resample: bicubic, which is the only one there is.
        columns: columns are moved upwards instead.
    """
    assert resample == Image.Resampling.BICUBIC
    turned = image.transpose(Image.Transpose.TRANSPOSE) if columns else image
    moved = Image.fromarray(shift_rows(np.asarray(turned), distances, fillcolor))
    return moved.transpose(Image.Transpose.TRANSPOSE) if columns else moved


def shift_rows(pixels: np.ndarray, distances: np.ndarray, fill: tuple[int, int, int]) -> np.ndarray:
    """Pixels [height, width, 3] uint8 with result[y, x] = pixels[y, x + distances[y]], the colour `fill` where that is outside.

    Source: Keys 1981 with a = -1, the edge repeated and results truncated, as Pillow's affine transforms do it.
    """
    _, width, channels = pixels.shape
    whole = np.floor(distances)
    d = (distances - whole).astype(np.float32)[:, None]
    start = whole.clip(-width - 1, width + 1).astype(np.int64)
    taps = take_rows(pixels, start).astype(np.float32)
    size = width * channels
    weights = ((-1 + (2 - d) * d) * d, 1 + (d - 2) * d * d, (1 + (1 - d) * d) * d, (d - 1) * d * d)
    result = taps[:, :size] * weights[0]
    for tap in (1, 2, 3):
        result += taps[:, tap * channels : tap * channels + size] * weights[tap]
    # Without the addend a plain surface would be one level darker: its sum of weights is 1 but for rounding.
    result += ROUNDING
    moved = np.clip(result, 0, 255, out=result).astype(np.uint8)
    first, end = (np.ceil(side - 0.5 - distances)[:, None] * channels for side in (0, width))
    column = np.arange(size, dtype=np.int32)
    inside = (column >= first.astype(np.int32)) & (column < end.astype(np.int32))
    # Products of bytes: a fifth of what numpy.where takes.
    moved *= inside.view(np.uint8)
    moved += np.tile(np.array(fill, dtype=np.uint8), width) * (~inside).view(np.uint8)
    return moved.reshape(pixels.shape)


def take_rows(pixels: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Pieces of rows, width + 3 pixels from one left of `start` [height] on, [height, (width + 3) * 3]; edges are repeated."""
    height, width, channels = pixels.shape
    left, right = max(0, 1 - int(start.min())), max(0, int(start.max()) + 2)
    padded = np.empty((height, left + width + right, channels), dtype=np.uint8)
    padded[:, :left] = pixels[:, :1]
    padded[:, left : left + width] = pixels
    padded[:, left + width :] = pixels[:, -1:]
    row, pixel = padded.strides[:2]
    # Every piece of every row, none of them copied.
    pieces = as_strided(padded, (height, padded.shape[1] - width - 2, (width + 3) * channels), (row, pixel, 1))
    return pieces[np.arange(height), start + left - 1]
