"""The robustness task: which classes a picture may be taken for, and what is kept of each picture."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dna_suite.metrics.robustness import ImageResults, KeptResults, PartResults, corrupted_top1, score_parts

SUBSETS = Path(__file__).parents[1] / "golden" / "imagenet_subsets.json"
CLASSES, CHOSEN = 6, torch.tensor([1, 3, 4])


def keep(logits, labels, *, columns=CHOSEN, index=None, counted=None):
    kept = KeptResults()
    index = torch.arange(len(labels)) if index is None else index
    counted = torch.ones(len(labels), dtype=torch.bool) if counted is None else counted
    kept.update(logits, labels[:, None], columns, index, counted)
    return kept


def test_a_class_is_chosen_among_the_set_s_own():
    # The best of all is outside the set, the best inside is right (huggingface/pytorch-image-models#2456).
    logits = torch.tensor([[9.0, 5.0, 0.0, 1.0, 2.0, 0.0], [9.0, 0.0, 0.0, 3.0, 2.0, 0.0]])
    found = keep(logits, torch.tensor([1, 3])).compute()
    assert found.correct.tolist() == [True, True]
    assert found.correct_all.tolist() == [False, False]
    # Selected first, then softmax: the 9 outside takes no part.
    expected = np.exp(5) / (np.exp(5) + np.exp(1) + np.exp(2))
    assert found.confidence[0] == pytest.approx(expected, rel=1e-12)


def test_half_precision_logits_are_widened_before_softmax():
    # exp(12) is above float16's largest number.
    logits = torch.zeros(1, CLASSES, dtype=torch.float16)
    logits[0, 3] = 12
    found = keep(logits, torch.tensor([3])).compute()
    assert found.confidence[0] == pytest.approx(np.exp(12) / (np.exp(12) + 2), rel=1e-12)


def test_confidences_that_float32_cannot_tell_from_1_stay_apart():
    logits = torch.zeros(2, CLASSES)
    logits[0, 3], logits[1, 3] = 20, 25
    first, second = keep(logits, torch.tensor([3, 3])).compute().confidence
    assert first < second < 1
    assert np.float32(first) == np.float32(second) == 1


def test_nan_is_wrong_and_stays_nan():
    logits = torch.zeros(2, CLASSES)
    # The first class of the set and of all is what a maximum over NaN gives.
    logits[0, 1], logits[1, 0] = float("nan"), float("nan")
    found = keep(logits, torch.tensor([1, 1])).compute()
    assert np.isnan(found.confidence).tolist() == [True, False]
    assert not found.correct.any()
    assert not found.correct_all.any()


@pytest.mark.parametrize(
    ("name", "seed", "masked", "unmasked", "confidence"),
    [
        ("A", 30, 0.44533333333333336, 0.3586666666666667, 0.2624947804470595),
        ("R", 31, 0.4846666666666667, 0.394, 0.27690227045315546),
    ],
)
def test_seeded_logits_give_what_the_authors_code_gives(name, seed, masked, unmasked, confidence):
    # Values: the public functions of hendrycks/imagenet-r@3131cacee on the same 1,500 rows of 1,000 float64 logits.
    columns = np.array(json.loads(SUBSETS.read_text())["class_indices"][name])
    random = np.random.default_rng(seed)
    logits, labels, lift = random.standard_normal((1500, 1000)), random.integers(0, 200, 1500), random.random(1500)
    logits[np.arange(1500), columns[labels]] += 5 * lift
    labels, columns = torch.from_numpy(columns[labels]), torch.from_numpy(columns)
    found = keep(torch.from_numpy(logits * 1.5), labels, columns=columns).compute()
    assert found.correct.mean() == masked
    assert found.correct_all.mean() == unmasked
    # The logits are rounded to float32 first: 2^-24 of values up to 8.
    assert found.confidence.mean() == pytest.approx(confidence, abs=1e-7)


def test_uncounted_rows_leave_no_trace_and_a_process_may_have_none():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(4, CLASSES, generator=generator), torch.tensor([1, 3, 4, 1])
    counted = torch.tensor([True, False, True, False])
    assert keep(logits, labels, counted=counted).compute().sample.tolist() == [0, 2]
    assert keep(logits, labels, counted=torch.zeros(4, dtype=torch.bool)).compute().sample.tolist() == []


def test_order_chunks_and_processes_change_nothing():
    generator = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(101, CLASSES, generator=generator), CHOSEN[torch.arange(101) % 3]
    whole = keep(logits, labels).compute()
    order = torch.randperm(101, generator=generator)
    dealt = [KeptResults() for _ in range(3)]
    for turn, rows in enumerate(order.split(7)):
        dealt[turn % 3].update(logits[rows], labels[rows, None], CHOSEN, rows, torch.ones(len(rows), dtype=torch.bool))
    # As a gather of three processes puts the lists together.
    gathered = keep(logits[:0], labels[:0])
    for one in dealt:
        gathered.merge_state(one)
    assert all((ours == theirs).all() for ours, theirs in zip(whole, gathered.compute(), strict=True))


def test_scores_are_those_of_each_set():
    # The bins of the calibration error hold 100 pictures: the less confident half of A is one, and the other is left out.
    part = np.repeat(np.arange(4), [200, 200, 3, 2])
    confidence = np.concatenate([np.repeat([0.3, 0.9], 100), np.full(200, 0.5), [0.2, 0.4, 0.6], [0.5, 0.7]])
    correct = np.concatenate([np.repeat([False, True], 100), np.ones(200, bool), np.zeros(5, bool)])
    found = score_parts(PartResults(["a", "r", "o", "val"], part, ImageResults(np.arange(405), confidence, correct, ~correct)))
    assert found["a/top1"] == (0.5, 200)
    assert found["a/top1_all_classes"] == (0.5, 200)
    assert found["r/top1"] == (1.0, 200)
    assert found["r/top1_all_classes"] == (0.0, 200)
    assert found["a/rmsce"] == (pytest.approx((0.5 * 0.3**2) ** 0.5, rel=1e-12), 200)
    assert found["a/rmsce_all_bins"] == (pytest.approx((0.5 * 0.3**2 + 0.5 * 0.1**2) ** 0.5, rel=1e-12), 200)
    # 1 for the first hundred, then 100 / k.
    assert found["a/aurra"] == (pytest.approx((100 + sum(100 / k for k in range(101, 201))) / 200, rel=1e-12), 200)
    # Of six pairs the unknown one is less confident in five.
    assert found["o/auroc"] == (pytest.approx(5 / 6, rel=1e-12), 5)
    assert found["o/aupr_chance"] == (3 / 5, 5)


def test_any_of_several_right_classes_will_do_and_minus_one_is_none():
    logits = torch.tensor([[0.0, 5, 0, 1, 2, 0], [0.0, 0, 0, 9, 2, 0], [9.0, 0, 0, 1, 2, 0]])
    kept = KeptResults()
    right = torch.tensor([[4, 1], [4, -1], [-1, -1]])
    kept.update(logits, right, torch.arange(CLASSES), torch.arange(3), torch.ones(3, dtype=torch.bool))
    assert kept.compute().correct.tolist() == [True, False, False]


def test_too_few_pictures_for_a_bin_have_no_calibration_error():
    results = ImageResults(np.arange(4), np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 1, 0, 1], bool), np.zeros(4, bool))
    found = score_parts(PartResults(["v2"], np.zeros(4, int), results))
    assert found == {"v2/top1": (0.75, 4), "v2/aurra": (pytest.approx((1 + 1 + 2 / 3 + 3 / 4) / 4, rel=1e-15), 4)}


def test_corrupted_pictures_are_scored_by_kind_and_severity():
    # Two kinds at two severities, two pictures each, picture by picture as the data has them.
    parts = ["a", "c/fog/1", "c/fog/2", "c/snow/1", "c/snow/2"]
    part = np.array([0] * 100 + [1, 2, 3, 4] * 2)
    correct = np.concatenate([np.ones(100, bool), [True, True, True, False, True, False, False, False]])
    results = PartResults(parts, part, ImageResults(np.arange(108), np.full(108, 0.5), correct, correct))
    assert corrupted_top1(results) == {("fog", 1): 1.0, ("fog", 2): 0.5, ("snow", 1): 0.5, ("snow", 2): 0.0}
    found = score_parts(results)
    assert found["c/top1"] == (0.5, 8)
    assert (found["c/fog/top1"], found["c/snow/top1"]) == ((0.75, 4), (0.25, 4))
    # Only where all kinds and severities are there.
    assert "c/mce" not in found
    assert found["a/top1"] == (1.0, 100)
