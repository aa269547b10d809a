"""What came out for each picture of the robustness sets, and the scores of the sets that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from dna_suite.metrics.calibration import BIN, aurra, score_calibration
from dna_suite.metrics.class_subset import subset_confidence
from dna_suite.metrics.classification import likeliest
from dna_suite.metrics.corruption import mean_corruption_error, mean_over_severities
from dna_suite.metrics.kept_samples import KeptSamples
from dna_suite.metrics.ood import score_unknown

# Sets of 200 of ImageNet's classes, whose scores are among those.
OF_200 = ("a", "r")
CORRUPTED = "c/"


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


class PartResults(NamedTuple):
    """Results of the n pictures of a test that has parts.

    Args:
        names: of the parts: sets, as "a" or "val", which is the known part that "o" is set against; then "c/fog/3" and so on,
            whose pictures are corrupted.
        of: int [n], which of `names` each picture is of.
        images: the results.
    """

    names: Sequence[str]
    of: np.ndarray
    images: ImageResults

    @property
    def plain(self) -> list[str]:
        """The parts whose pictures are as they are, which come before those that are corrupted."""
        return [name for name in self.names if not name.startswith(CORRUPTED)]


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
            labels: int64 [n, k], columns of the right classes, of which any will do; -1 is none.
            columns: int64 [m], those that the set's softmax is over.
            index: int64 [n], place in the test part.
            counted: bool [n]; rows that are False leave no trace.
        """
        logits = logits.detach().float()
        confidence, predicted = subset_confidence(logits, columns)
        finite = ~logits.isnan().any(1)
        right, right_of_all = ((named[:, None] == labels).any(1) for named in (predicted, likeliest(logits)[:, 0]))
        self.keep(index, counted, confidence=confidence, correct=right & finite, correct_all=right_of_all & finite)

    def compute(self) -> ImageResults:
        """The results of every picture, in order."""
        sample, confidence, correct, correct_all = self.kept()
        return ImageResults(sample, confidence.astype(np.float64), correct.astype(bool), correct_all.astype(bool))


def score_parts(results: PartResults) -> dict[str, tuple[float, int]]:
    """The scores of the sets that the pictures are of.

    Returns:
        "a/top1" and so on -> value as a fraction, and the number of pictures behind it.

    Raises:
        DnaError: a confidence is not finite.
    """
    images = results.images
    own = {name: results.of == number for number, name in enumerate(results.plain)}
    scores: dict[str, tuple[float, int]] = {}
    for name, rows in own.items():
        if name == "o":
            unknown, known = -images.confidence[rows], -images.confidence[own["val"]]
            pictures = len(unknown) + len(known)
            scores |= {f"o/{key}": (value, pictures) for key, value in score_unknown(unknown, known).items()}
        elif name != "val":
            found = score_pictures(images.confidence[rows], images.correct[rows])
            if name in OF_200:
                found["top1_all_classes"] = float(images.correct_all[rows].mean())
            scores |= {f"{name}/{key}": (value, int(rows.sum())) for key, value in found.items()}
    return scores | score_corruptions(corrupted_top1(results), int((results.of >= len(own)).sum()))


def score_pictures(confidence: np.ndarray, correct: np.ndarray) -> dict[str, float]:
    """The fractions top1, and of `score_calibration` where there are enough pictures for a bin.

    Args:
        confidence: [n].
        correct: bool [n].

    Raises:
        DnaError: a confidence is not finite.
    """
    enough = len(correct) >= BIN
    calibration = score_calibration(confidence, correct) if enough else {"aurra": aurra(confidence, correct)}
    return {"top1": float(correct.mean()), **calibration}


def corrupted_top1(results: PartResults) -> dict[tuple[str, int], float]:
    """(kind, severity) -> share of right answers, where pictures were corrupted."""
    pictures = np.bincount(results.of, minlength=len(results.names))
    right = np.bincount(results.of, weights=results.images.correct, minlength=len(results.names))
    split = [name.split("/") for name in results.names]
    return {
        (words[1], int(words[2])): float(right[number] / pictures[number]) for number, words in enumerate(split) if len(words) > 1
    }


def score_corruptions(top1: Mapping[tuple[str, int], float], pictures: int) -> dict[str, tuple[float, int]]:
    """The scores of ImageNet-C: mean accuracy, that of each kind over its severities, and mce where all kinds are there.

    Args:
        top1: (kind, severity) -> fraction; all of as many pictures.
        pictures: behind all of them.
    """
    if not top1:
        return {}
    values = {f"c/{kind}/top1": value for kind, value in mean_over_severities(top1).items()}
    scores = {"c/top1": (sum(top1.values()) / len(top1), pictures)}
    error = mean_corruption_error(top1)
    if error is not None:
        scores["c/mce"] = (error, pictures)
    return scores | {name: (value, pictures // len(values)) for name, value in values.items()}
