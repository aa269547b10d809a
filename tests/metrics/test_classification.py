import math

import pytest
import torch

from dna_suite.metrics.classification import ClassificationScores


def scores_of(correct: list[bool], batch: int, classes: int = 3) -> ClassificationScores:
    """Scores of samples with label 0, answered rightly or with class 1, in batches."""
    scores = ClassificationScores(classes)
    logits = torch.tensor([[2.0, 0.0, -1.0] if right else [0.0, 2.0, -1.0] for right in correct])
    for rows in logits.split(batch):
        scores.update(rows, torch.zeros(len(rows), dtype=torch.long), torch.ones(len(rows), dtype=torch.bool))
    return scores


def test_a_small_last_batch_does_not_skew_the_mean():
    # 4/4, 4/4, 0/2 right: 0.8; the mean of batch means is 0.6667 (Lightning-AI/pytorch-lightning#4493).
    correct = [True] * 8 + [False] * 2
    values = scores_of(correct, batch=4).compute()
    assert values["top1"] == 0.8
    assert values["samples"] == 10
    right, wrong = math.log(1 + math.exp(-2) + math.exp(-3)), math.log(math.exp(2) + 1 + math.exp(-1))
    # Each loss is rounded to 2^-24 = 6e-8 and computed in float32 (relative 6e-8).
    assert values["loss"] == pytest.approx(0.8 * right + 0.2 * wrong, abs=3e-7)
    assert scores_of(correct, batch=3).compute() == values


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_five_samples_count_once_on_any_number_of_processes(processes):
    # Padding with repeats gives 0.6667 on 2 processes (facebookresearch/deit#24).
    correct = torch.tensor([False, True, True, True, True])
    shares = [scores_of([bool(correct[i]) for i in range(rank, 5, processes)], batch=1) for rank in range(processes)]
    for idle in shares[5 % processes :] if 5 % processes else []:
        idle.update(torch.zeros(1, 3), torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.bool))
    merged = ClassificationScores(3)
    for name in merged._defaults:
        setattr(merged, name, sum(getattr(share, name) for share in shares))
    assert merged.compute() == scores_of(correct.tolist(), batch=5).compute()
    assert merged.compute()["top1"] == 0.8


def test_top5_looks_at_five_classes_and_top1_at_one():
    logits = torch.arange(7.0).repeat(7, 1)
    scores = ClassificationScores(7)
    scores.update(logits, torch.arange(7), torch.ones(7, dtype=torch.bool))
    assert scores.compute()["top1"] == pytest.approx(1 / 7)
    assert scores.compute()["top5"] == pytest.approx(5 / 7)


def test_with_fewer_than_five_classes_top5_is_all_of_them():
    assert scores_of([False, False], batch=2).compute()["top5"] == 1.0


def test_nan_logits_are_wrong_and_make_the_loss_nan():
    scores = ClassificationScores(3)
    scores.update(torch.full((2, 3), math.nan), torch.tensor([0, 2]), torch.ones(2, dtype=torch.bool))
    values = scores.compute()
    assert values["top1"] == values["top5"] == 0.0
    assert math.isnan(values["loss"])


def test_uncounted_rows_leave_no_trace_even_if_not_finite():
    scores = scores_of([True, False], batch=2)
    before = scores.compute()
    scores.update(torch.full((1, 3), math.nan), torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.bool))
    assert scores.compute() == before


def test_counts_stay_whole_beyond_what_float32_can_count():
    scores = ClassificationScores(3)
    scores.count += 2**24
    scores.correct1 += 2**24
    scores.update(torch.tensor([[1.0, 0, 0]]), torch.tensor([0]), torch.tensor([True]))
    assert scores.compute()["samples"] == 2**24 + 1
    assert scores.double().count.dtype == torch.int64


def test_nothing_counted_is_nan_not_zero():
    assert math.isnan(ClassificationScores(3).compute()["top1"])
