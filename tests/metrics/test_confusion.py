"""The confusion matrix, on cases whose counts are known by hand."""

import math

import pytest
import torch

from dna_suite.metrics.classification import ClassificationScores
from dna_suite.metrics.confusion import ConfusionMatrix, class_accuracies, mean_class_accuracy


def matrix_of(predicted: list[int], labels: list[int], classes: int, batch: int = 100) -> torch.Tensor:
    """Counts of samples that are predicted with certainty, in batches."""
    matrix = ConfusionMatrix(classes)
    logits = 10.0 * torch.nn.functional.one_hot(torch.tensor(predicted), classes)
    for rows, targets in zip(logits.split(batch), torch.tensor(labels).split(batch), strict=True):
        matrix.update(rows, targets, torch.ones(len(rows), dtype=torch.bool))
    return matrix.compute()


def test_rows_are_true_classes_and_columns_predicted_ones():
    counts = matrix_of(predicted=[0, 1, 1, 2, 2, 2], labels=[0, 0, 1, 1, 2, 2], classes=3)
    assert counts.tolist() == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 2, 0]]
    assert counts.dtype == torch.int64
    assert class_accuracies(counts).tolist() == [0.5, 0.5, 1.0]
    # (1/2 + 1/2 + 1) / 3 and 4 of 6 happen to be equal; with another share of classes they are not.
    assert mean_class_accuracy(counts) == pytest.approx(2 / 3, rel=1e-15)
    assert mean_class_accuracy(matrix_of([0] * 9 + [0], [0] * 9 + [1], 2)) == 0.5


def test_a_class_without_samples_is_not_one_with_no_right_answer():
    # huggingface/pytorch-image-models#957: five samples of each of a, c, d, none of b, all of them right.
    labels = [0] * 5 + [2] * 5 + [3] * 5
    counts = matrix_of(labels, labels, classes=4)
    accuracies = class_accuracies(counts).tolist()
    assert (accuracies[0], accuracies[2], accuracies[3]) == (1, 1, 1)
    assert math.isnan(accuracies[1])
    assert mean_class_accuracy(counts) == 1
    assert math.isnan(mean_class_accuracy(torch.zeros(3, 4, dtype=torch.int64)))


@pytest.mark.parametrize("batch", [1, 4, 7])
def test_batches_and_processes_change_no_count(batch):
    generator = torch.Generator().manual_seed(0)
    labels, predicted = (torch.randint(0, 5, (60,), generator=generator).tolist() for _ in range(2))
    whole = matrix_of(predicted, labels, 5)
    assert torch.equal(matrix_of(predicted, labels, 5, batch), whole)
    shares = [matrix_of(predicted[rank::3], labels[rank::3], 5, batch) for rank in range(3)]
    # What torchmetrics does with the states that it gathers.
    assert torch.equal(ConfusionMatrix(5)._reductions["counts"](torch.stack(shares)), whole)


def test_the_diagonal_is_what_top1_counts_with_equal_logits_and_nan_too():
    logits = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [math.nan, 9.0, 0.0], [0.0, 5.0, 5.0]])
    for labels in (torch.tensor([0, 1, 2, 1, 1]), torch.tensor([1, 0, 0, 1, 2])):
        scores, matrix = ClassificationScores(3), ConfusionMatrix(3)
        for metric in (scores, matrix):
            metric.update(logits, labels, torch.ones(5, dtype=torch.bool))
        counts = matrix.compute()
        assert int(counts.diagonal().sum()) == round(5 * scores.compute()["top1"])
        assert counts.sum() == 5
        # The sample with a NaN predicts no class.
        assert counts[:, 3].tolist() == [0, 1, 0]


def test_uncounted_samples_leave_no_trace():
    matrix = ConfusionMatrix(2)
    matrix.update(torch.eye(2), torch.tensor([0, 1]), torch.tensor([True, False]))
    assert matrix.compute().tolist() == [[1, 0, 0], [0, 0, 0]]
