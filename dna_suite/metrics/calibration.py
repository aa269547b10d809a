"""Calibration: how far confidence is from the share of right answers, and what accuracy a confidence threshold buys."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dna_suite.errors import DnaError
from dna_suite.metrics.kept_samples import KeptSamples

BIN = 100


class Bins(NamedTuple):
    """Equally filled bins of confidence, the least confident first: what a reliability diagram shows.

    Args:
        confidence: [bins] mean confidence.
        accuracy: [bins] share of right answers.
        samples: [bins] int64.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    samples: np.ndarray


def reliability(confidence: np.ndarray, correct: np.ndarray, size: int = BIN) -> Bins:
    """Bins of `size` samples in the order of their confidence; the last one takes in what is left over.

    Args:
        confidence: [n], finite.
        correct: bool [n].
        size: samples of a bin.

    Raises:
        DnaError: there are fewer samples than a bin holds, a bin holds none, or a confidence is not finite.
    """
    order = _ascending(confidence)
    if size < 1:
        raise DnaError(f"calibration with bins of {size} samples: a bin holds at least 1")
    if len(order) < size:
        raise DnaError(f"calibration of {len(order)} samples: a bin holds {size}")
    starts = np.arange(len(order) // size) * size
    samples = np.diff([*starts, len(order)])
    sums = (np.add.reduceat(np.asarray(values, dtype=np.float64)[order], starts) for values in (confidence, correct))
    means = [total / samples for total in sums]
    return Bins(means[0], means[1], samples)


def calibration_error(
    confidence: np.ndarray, correct: np.ndarray, norm: str = "2", last_bin: bool = False, size: int = BIN
) -> float:
    """Distance of confidence and accuracy over the bins of `reliability`, weighted by their samples.

    The published numbers leave the most confident bin out, while their weights still count its samples; so does this one unless
    `last_bin` is set. With norm "2" it is RMSCE.

    Args:
        confidence: [n], finite.
        correct: bool [n].
        norm: "1" mean distance, "2" root of the mean square, "max" the largest.
        last_bin: count the most confident bin too.
        size: samples of a bin.

    Raises:
        DnaError: as `reliability`.

    Source: the evaluation code of ImageNet-A and -R (hendrycks/natural-adv-examples#16 reports the bin that is left out).
    """
    bins = reliability(confidence, correct, size)
    distance = np.abs(bins.confidence - bins.accuracy)
    weight = bins.samples / bins.samples.sum()
    if not last_bin:
        distance, weight = distance[:-1], weight[:-1]
        if len(distance) == 0:
            warnings.warn(
                f"calibration of {len(confidence)} samples: one bin of {size}, and the last bin is left out, so the error is 0",
                stacklevel=2,
            )
            return 0.0
    if norm == "max":
        return float(distance.max())
    return float(np.sqrt((weight * distance**2).sum())) if norm == "2" else float((weight * distance).sum())


def response_curve(confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Accuracy among the k most confident samples, for k = 1 to n, [n]; of equal confidences the later sample comes first."""
    right = np.asarray(correct, dtype=np.float64)[_ascending(confidence)[::-1]]
    return np.cumsum(right) / np.arange(1, len(right) + 1)


def aurra(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Area under the response-rate accuracy curve: the plain mean of `response_curve`.

    Source: Hendrycks et al. 2021 (ImageNet-A), section 4.
    """
    return float(response_curve(confidence, correct).mean())


def soft_f1(confidence: np.ndarray, correct: np.ndarray) -> float:
    """F1 of finding wrong answers, with 1 - confidence as the degree to which an answer is called wrong.

    NaN where there is neither doubt nor a wrong answer.
    """
    _ascending(confidence)
    doubt, wrong = 1 - np.asarray(confidence, dtype=np.float64), ~np.asarray(correct, dtype=bool)
    total = (doubt + wrong).sum()
    return float(2 * (doubt * wrong).sum() / total) if total else float("nan")


def score_calibration(confidence: np.ndarray, correct: np.ndarray, size: int = BIN) -> dict[str, float]:
    """The fractions rmsce, rmsce_all_bins and aurra.

    Args:
        confidence: [n], finite.
        correct: bool [n].
        size: samples of a bin.

    Raises:
        DnaError: as `reliability`.
    """
    return {
        "rmsce": calibration_error(confidence, correct, size=size),
        "rmsce_all_bins": calibration_error(confidence, correct, last_bin=True, size=size),
        "aurra": aurra(confidence, correct),
    }


class CalibrationScores(KeptSamples):
    """All scores of calibration of a model's answers; equal confidences are in the order of their ids.

    Args:
        size: samples of a bin.
    """

    def __init__(self, size: int = BIN) -> None:
        super().__init__("confidence", "correct")
        self.size = size

    def update(self, confidence: Tensor, correct: Tensor, ids: Tensor, counted: Tensor) -> None:
        """Add a batch.

        Args:
            confidence: [n], of float32 logits or wider ones.
            correct: bool [n].
            ids: int64 [n], no two samples share one.
            counted: bool [n]; rows that are False leave no trace.
        """
        self.keep(ids, counted, confidence=confidence, correct=correct.to(torch.bool))

    def compute(self) -> dict[str, float]:
        """The fractions of `score_calibration`, soft_f1, and of the other norms mad, mad_all_bins, max and max_all_bins.

        Raises:
            DnaError: as `reliability`.
        """
        _, confidence, correct = self.kept()
        more = {
            f"{name}{ending}": calibration_error(confidence, correct, norm, last_bin=bool(ending), size=self.size)
            for name, norm in (("mad", "1"), ("max", "max"))
            for ending in ("", "_all_bins")
        }
        return {**score_calibration(confidence, correct, self.size), **more, "soft_f1": soft_f1(confidence, correct)}


def _ascending(confidence: np.ndarray) -> np.ndarray:
    """The stable order of confidences, smallest first.

    Raises:
        DnaError: there is none, or one is not finite.
    """
    values = np.asarray(confidence, dtype=np.float64)
    bad = int((~np.isfinite(values)).sum())
    if bad or len(values) == 0:
        raise DnaError(f"calibration: {bad} of {len(values)} confidences are not finite" if bad else "calibration of no sample")
    return np.argsort(values, kind="stable")
