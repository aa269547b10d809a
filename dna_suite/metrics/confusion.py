"""Which class is taken for which: counts that do not depend on batches or processes, and what they say about each class."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from dna_suite.metrics.classification import likeliest


class ConfusionMatrix(Metric):
    """Counted samples by their class and the class that was predicted.

    The counts are int64 sums, as those of `ClassificationScores`; the diagonal is what its top-1 counts. The last column holds
    the samples whose logits have a NaN, which predict nothing.

    Args:
        classes: number of classes.
    """

    full_state_update = False
    counts: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros((classes, classes + 1), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor, counted: Tensor) -> None:
        """Add a batch.

        Args:
            logits: [n, classes].
            labels: int64 [n].
            counted: bool [n]; rows that are False leave no trace.
        """
        logits = logits.detach().float()
        classes = logits.shape[1]
        predicted = likeliest(logits)[:, 0].masked_fill(logits.isnan().any(1), classes)
        places = labels * (classes + 1) + predicted
        self.counts.view(-1).index_add_(0, places, counted.to(torch.int64))

    def compute(self) -> Tensor:
        """int64 [classes, classes + 1]: row true class, column predicted class, last column no prediction."""
        return self.counts


def class_accuracies(counts: Tensor) -> Tensor:
    """The share of right answers of each class, float64 [classes]; NaN for a class without samples.

    Args:
        counts: int64 [classes, classes + 1], from `ConfusionMatrix`.

    Source: a class without samples is not one with no right answer (huggingface/pytorch-image-models#957).
    """
    return counts.diagonal().double() / counts.sum(1)


def mean_class_accuracy(counts: Tensor) -> float:
    """Mean of `class_accuracies` over the classes that have samples; NaN where none has."""
    return float(class_accuracies(counts).nanmean())
