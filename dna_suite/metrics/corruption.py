"""Mean corruption error: how a classifier fails on corrupted pictures, in units of how AlexNet does."""

from __future__ import annotations

from collections.abc import Mapping

from dna_suite.data.corruptions import SEVERITIES

# AlexNet's error on each kind, the mean of its five severities. Source: the authors' own numbers, of hendrycks/robustness.
ALEXNET_ERRORS: Mapping[str, float] = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}


def mean_over_severities(top1: Mapping[tuple[str, int], float]) -> dict[str, float]:
    """The mean accuracy of each kind of corruption over its severities.

    Args:
        top1: (kind, severity) -> fraction.
    """
    kinds = dict.fromkeys(kind for kind, _ in top1)
    values = {kind: [value for (own, _), value in top1.items() if own == kind] for kind in kinds}
    return {kind: sum(found) / len(found) for kind, found in values.items()}


def mean_corruption_error(top1: Mapping[tuple[str, int], float]) -> float | None:
    """The error on each kind, divided by AlexNet's, as the mean over the kinds; 1 is as bad as AlexNet.

    Args:
        top1: (kind, severity) -> fraction.

    Returns:
        A fraction, which may be above 1, or None unless all 15 kinds are there at all 5 severities.

    Source: Hendrycks and Dietterich 2019, section 4.2.
    """
    whole = {(kind, severity) for kind in ALEXNET_ERRORS for severity in SEVERITIES}
    if set(top1) != whole:
        return None
    accuracy = mean_over_severities(top1)
    return sum((1 - accuracy[kind]) / error for kind, error in ALEXNET_ERRORS.items()) / len(ALEXNET_ERRORS)
