"""What came out for each picture of ImageNet-A, -R and -O, and the scores of the sets that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from dna_suite.metrics.calibration import score_calibration
from dna_suite.metrics.class_subset import subset_confidence
from dna_suite.metrics.classification import likeliest
from dna_suite.metrics.kept_samples import KeptSamples
from dna_suite.metrics.ood import score_unknown


class ImageResults(NamedTuple):
    """Results of n pictures, in order.

    Args:
        sample: int64 [n], places in the test part.
        confidence: float64 [n], largest probability among the classes of the picture's set.
        correct: bool [n], whether that class is the right one.
        correct_all: bool [n], whether the right class is the likeliest of all classes.
    """

    sample: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray
    correct_all: np.ndarray

    def rows(self) -> Iterator[tuple[int, float, bool, bool]]:
        """Place and results of one picture after the other, as plain values."""
        return zip(*(column.tolist() for column in self), strict=True)


class KeptResults(KeptSamples):
    """Keeps the results of each counted picture.

    A row of logits with NaN is wrong, as `ClassificationScores` has it, and its confidence is NaN.
    """

    def __init__(self) -> None:
        super().__init__("confidence", "correct", "correct_all")

    def update(self, logits: Tensor, labels: Tensor, columns: Tensor, index: Tensor, counted: Tensor) -> None:
        """Add pictures of one set.

        Args:
            logits: [n, classes] of all classes.
            labels: int64 [n], columns of the right classes.
            columns: int64 [m], those that the set's softmax is over.
            index: int64 [n], place in the test part.
            counted: bool [n]; rows that are False leave no trace.
        """
        logits = logits.detach().float()
        confidence, predicted = subset_confidence(logits, columns)
        finite = ~logits.isnan().any(1)
        right, right_of_all = predicted == labels, likeliest(logits)[:, 0] == labels
        self.keep(index, counted, confidence=confidence, correct=right & finite, correct_all=right_of_all & finite)

    def compute(self) -> ImageResults:
        """The results of every picture, in order."""
        sample, confidence, correct, correct_all = self.kept()
        return ImageResults(sample, confidence.astype(np.float64), correct.astype(bool), correct_all.astype(bool))


def score_sets(sets: Sequence[str], results: ImageResults) -> dict[str, tuple[float, int]]:
    """The scores of the sets.

    Args:
        sets: [n] a, r, o or val of each picture; val is the known part that o is set against.
        results: of the same pictures.

    Returns:
        "a/top1" and so on -> value as a fraction, and the number of pictures behind it.

    Raises:
        DnaError: a set has no picture, fewer than a bin of the calibration error holds, or a confidence that is not finite.
    """
    names = np.array(sets)
    scores: dict[str, tuple[float, int]] = {}
    for name in ("a", "r"):
        own = names == name
        confidence, correct = results.confidence[own], results.correct[own]
        values = {
            "top1": float(correct.mean()),
            "top1_all_classes": float(results.correct_all[own].mean()),
            **score_calibration(confidence, correct),
        }
        scores |= {f"{name}/{key}": (value, len(correct)) for key, value in values.items()}
    unknown, known = -results.confidence[names == "o"], -results.confidence[names == "val"]
    pictures = len(unknown) + len(known)
    return scores | {f"o/{key}": (value, pictures) for key, value in score_unknown(unknown, known).items()}
