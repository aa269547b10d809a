"""Out-of-distribution detection: how well a score tells unknown pictures, the positive ones, from known ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dna_suite.errors import DnaError
from dna_suite.metrics.kept_samples import KeptSamples


def auroc(unknown: np.ndarray, known: np.ndarray) -> float:
    """Area under the ROC curve: chance that an unknown picture scores above a known one, ties counting half.

    Args:
        unknown: [n] scores of unknown pictures, higher for what looks unknown.
        known: [m] scores of known pictures.

    Raises:
        DnaError: one side is empty or holds a score that is not finite.
    """
    hits, alarms = _counts(unknown, known)
    positives, negatives = hits[-1], alarms[-1]
    # The curve through the distinct scores; a tie is a slope, whose area is half.
    rise, run = np.diff(hits, prepend=0), np.diff(alarms, prepend=0)
    return float((run * (hits - rise / 2)).sum() / (positives * negatives))


def average_precision(unknown: np.ndarray, known: np.ndarray) -> float:
    """AUPR as average precision: precision at each distinct score, weighted by the recall that it adds; see `auroc`."""
    hits, alarms = _counts(unknown, known)
    return float((np.diff(hits, prepend=0) / hits[-1] * (hits / (hits + alarms))).sum())


def chance_precision(unknown: np.ndarray, known: np.ndarray) -> float:
    """The average precision of scores that say nothing: the share of unknown pictures."""
    return len(unknown) / (len(unknown) + len(known))


def fpr_at_recall(unknown: np.ndarray, known: np.ndarray, recall: float = 0.95) -> float:
    """Share of known pictures that are called unknown at the threshold whose recall is nearest to `recall`; see `auroc`.

    Of thresholds that are equally near the loosest one counts, the one with most false alarms: where recall can be met exactly,
    libraries that take the first threshold reaching it give smaller numbers.

    Source: the evaluation code of ImageNet-O (hendrycks/outlier-exposure).
    """
    hits, alarms = _counts(unknown, known)
    reached = hits / hits[-1]
    # Beyond the first threshold that finds all, there is nothing to gain.
    end = int(np.argmax(hits == hits[-1])) + 1
    distance = np.abs(reached[:end] - recall)
    nearest = end - 1 - int(np.argmin(distance[::-1]))
    return float(alarms[nearest] / alarms[-1])


def score_unknown(unknown: np.ndarray, known: np.ndarray) -> dict[str, float]:
    """The fractions fpr95, auroc, aupr and aupr_chance; see `auroc`."""
    return {
        "fpr95": fpr_at_recall(unknown, known),
        "auroc": auroc(unknown, known),
        "aupr": average_precision(unknown, known),
        "aupr_chance": chance_precision(unknown, known),
    }


class UnknownPictureScores(KeptSamples):
    """AUROC, AUPR with its chance level, and FPR95, of the negative confidence as the score."""

    def __init__(self) -> None:
        super().__init__("confidence", "unknown")

    def update(self, confidence: Tensor, unknown: Tensor, ids: Tensor, counted: Tensor) -> None:
        """Add a batch.

        Args:
            confidence: [n], of float32 logits or wider ones.
            unknown: bool [n], whether the picture shows none of the known classes.
            ids: int64 [n]; no two pictures, known or unknown, share one.
            counted: bool [n]; rows that are False leave no trace.
        """
        self.keep(ids, counted, confidence=confidence, unknown=unknown.to(torch.bool))

    def compute(self) -> dict[str, float]:
        """The fractions auroc, aupr, aupr_chance and fpr95.

        Raises:
            DnaError: as `auroc`.
        """
        _, confidence, unknown = self.kept()
        sides = -confidence[unknown == 1].astype(np.float64), -confidence[unknown == 0].astype(np.float64)
        return score_unknown(*sides)


def _counts(unknown: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unknown and known pictures at or above each distinct score, the highest score first."""
    sides = [np.asarray(side, dtype=np.float64) for side in (unknown, known)]
    for name, side in zip(("unknown", "known"), sides, strict=True):
        if len(side) == 0:
            raise DnaError(f"out-of-distribution scores of no {name} picture")
        if not np.isfinite(side).all():
            raise DnaError(f"out-of-distribution scores: {int((~np.isfinite(side)).sum())} of {name} pictures are not finite")
    scores = np.concatenate(sides)
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)
    is_unknown = order < len(sides[0])
    return np.cumsum(is_unknown)[last], np.cumsum(~is_unknown)[last]
