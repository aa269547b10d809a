"""Mixup and cutmix of whole batches, on the device, with their draws from a numpy generator."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def smooth_one_hot(labels: Tensor, num_classes: int, smoothing: float = 0.0) -> Tensor:
    """Labels [n] as target rows [n, num_classes]: 1 - smoothing on the label, plus smoothing / num_classes everywhere.

    This is the only place where labels are smoothed; the loss takes the rows as they are.

    Source: Szegedy et al. 2016, section 7.
    """
    rows = torch.full((len(labels), num_classes), smoothing / num_classes, device=labels.device)
    return rows.scatter_(1, labels[:, None], 1 - smoothing + smoothing / num_classes)


def mix(
    images: Tensor, targets: Tensor, mixup: float, cutmix: float, switch_prob: float, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """One of mixup and cutmix for a whole batch, each sample with its mirror image in the batch's order.

    Training order is random, so mirroring is a random pairing. Any batch size works; the middle sample of an odd one stays as
    it is.

    Args:
        images: [n, channels, height, width], normalised.
        targets: [n, num_classes], rows that sum to 1.
        mixup: alpha of the Beta distribution of the mixup share; 0 is off.
        cutmix: alpha of cutmix; 0 is off.
        switch_prob: probability of cutmix where both are on.
        generator: where the draws come from.

    Returns:
        Images and targets of the same shapes; rows still sum to 1.

    Source: Zhang et al. 2018 (mixup), Yun et al. 2019 (cutmix), batch mode of timm's Mixup.
    """
    if mixup <= 0 and cutmix <= 0:
        return images, targets
    use_cutmix = cutmix > 0 and (mixup <= 0 or generator.random() < switch_prob)
    if not use_cutmix:
        return blend(images, targets, generator.beta(mixup, mixup))
    height, width = images.shape[-2:]
    box = draw_cut(height, width, generator.beta(cutmix, cutmix), generator)
    return paste(images, targets, box)


def blend(images: Tensor, targets: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Mixup: share * own + (1 - share) * partner, for images and targets."""
    return share * images + (1 - share) * images.flip(0), share * targets + (1 - share) * targets.flip(0)


def paste(images: Tensor, targets: Tensor, box: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
    """Cutmix: a box of the partner, targets by the area that is really pasted.

    Args:
        images: [n, channels, height, width].
        targets: [n, num_classes].
        box: top, bottom, left, right in pixels; bottom and right are outside.
    """
    top, bottom, left, right = box
    height, width = images.shape[-2:]
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = images.flip(0)[..., top:bottom, left:right]
    share = 1 - (bottom - top) * (right - left) / (height * width)
    return mixed, share * targets + (1 - share) * targets.flip(0)


def draw_cut(height: int, width: int, share: float, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """A box with 1 - share of the area around a uniform centre, cut off at the borders: top, bottom, left, right."""
    side = math.sqrt(1 - share)
    cut_height, cut_width = int(height * side), int(width * side)
    row, column = int(generator.integers(height)), int(generator.integers(width))
    top, bottom = max(0, row - cut_height // 2), min(height, row + (cut_height + 1) // 2)
    left, right = max(0, column - cut_width // 2), min(width, column + (cut_width + 1) // 2)
    return top, bottom, left, right
