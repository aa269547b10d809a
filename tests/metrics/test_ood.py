"""Telling unknown pictures from known ones, against the values of ImageNet-O's authors and of the libraries."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

from dna_suite.errors import DnaError
from dna_suite.metrics.ood import UnknownPictureScores, auroc, average_precision, chance_precision, fpr_at_recall

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "robustness_golden.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["ood"]}
MEASURES = {"auroc": auroc, "aupr": average_precision, "fpr95": fpr_at_recall}
# name -> seed, unknown and known samples, by how much the unknown ones score higher, decimals.
DRAWN = {
    "O_like_gauss": (20, 2000, 10_000, 0.5, None),
    "null_no_signal": (21, 2000, 10_000, 0.0, None),
    "small_10_vs_40": (22, 10, 40, 1.0, None),
    "odd_sizes": (23, 137, 911, 0.7, None),
    "ties_1dec": (24, 2000, 10_000, 0.5, 1),
}


def scores_of(name):
    """Scores of the unknown and of the known samples of a golden case."""
    if name not in DRAWN:
        return np.array(CASES[name]["out"]), np.array(CASES[name]["in"])
    seed, unknown, known, shift, decimals = DRAWN[name]
    random = np.random.default_rng(seed)
    sides = random.standard_normal(unknown) + shift, random.standard_normal(known)
    return sides if decimals is None else tuple(side.round(decimals) for side in sides)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_authors_code(name):
    unknown, known = scores_of(name)
    if name in DRAWN:
        assert [unknown.sum(), known.sum()] == pytest.approx(CASES[name]["check"]["sum"], rel=1e-9)
    found = {key: measure(unknown, known) for key, measure in MEASURES.items()}
    assert found == pytest.approx(CASES[name]["results"], abs=1e-9)


@pytest.mark.parametrize("name", DRAWN)
def test_with_the_known_pictures_as_the_positive_ones_only_auroc_stays(name):
    unknown, known = scores_of(name)
    swapped = {key: measure(-known, -unknown) for key, measure in MEASURES.items()}
    assert swapped == pytest.approx(CASES[name]["id_positive_for_contrast"], abs=1e-9)
    assert swapped["auroc"] == pytest.approx(CASES[name]["results"]["auroc"], abs=1e-12)
    assert abs(swapped["aupr"] - CASES[name]["results"]["aupr"]) > 0.3


def test_chance_is_the_share_of_unknown_pictures():
    # hendrycks/natural-adv-examples#10: not 0.5.
    assert chance_precision(np.zeros(2000), np.zeros(10_000)) == pytest.approx(1 / 6, rel=1e-15)
    assert average_precision(np.zeros(2000), np.zeros(10_000)) == pytest.approx(1 / 6, rel=1e-15)


def test_equal_scores_count_one_half():
    unknown, known = np.array([1.0, 2.0, 2.0]), np.array([2.0, 0.0])
    # Pairs: 1 below 2, above 0; twice: equal to 2, above 0.
    assert auroc(unknown, known) == (1 + 2 + 2 * 0.5) / 6


@pytest.mark.parametrize("measure", MEASURES.values())
def test_the_order_of_scores_changes_no_digit(measure):
    unknown, known = scores_of("ties_1dec")
    random = np.random.default_rng(0)
    assert measure(random.permutation(unknown), random.permutation(known)) == measure(unknown, known)


@pytest.mark.parametrize("measure", MEASURES.values())
def test_one_class_and_what_is_no_number_are_errors(measure):
    some = np.array([0.1, 0.2])
    with pytest.raises(DnaError, match="no unknown picture"):
        measure(np.array([]), some)
    with pytest.raises(DnaError, match="no known picture"):
        measure(some, np.array([]))
    for value in (math.nan, math.inf):
        with pytest.raises(DnaError, match="1 of known pictures are not finite"):
            measure(some, np.array([0.3, value]))


def test_where_libraries_give_the_same_number_and_where_not():
    unknown, known = scores_of("O_like_gauss")
    given = CASES["O_like_gauss"]["results"]
    scores, truth = np.concatenate([unknown, known]), np.repeat([1, 0], [2000, 10_000])
    assert roc_auc_score(truth, scores) == pytest.approx(given["auroc"], abs=1e-12)
    assert average_precision_score(truth, scores) == pytest.approx(given["aupr"], abs=1e-12)
    # torchmetrics: float32 inside.
    tensors = torch.from_numpy(scores), torch.from_numpy(truth)
    assert float(BinaryAUROC()(*tensors)) == pytest.approx(given["auroc"], abs=1e-6)
    assert float(BinaryAveragePrecision()(*tensors)) == pytest.approx(given["aupr"], abs=1e-6)
    # A trapezoid under the curve of precision and recall, as pytorch-ood has it.
    precision, recall, _ = precision_recall_curve(truth, scores)
    assert abs(auc(recall, precision) - given["aupr"]) > 1e-4
    # The first threshold with a recall of 0.95 is the tightest of those that have exactly 0.95; the authors take the loosest.
    false_rate, true_rate, _ = roc_curve(truth, scores, drop_intermediate=False)
    reached = true_rate == 0.95
    assert false_rate[reached].max() == given["fpr95"]
    assert false_rate[np.argmax(true_rate >= 0.95)] == false_rate[reached].min() < given["fpr95"]


def test_with_ties_too_scikit_learn_agrees():
    unknown, known = scores_of("ties_1dec")
    scores, truth = np.concatenate([unknown, known]), np.repeat([1, 0], [2000, 10_000])
    assert auroc(unknown, known) == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    assert average_precision(unknown, known) == pytest.approx(average_precision_score(truth, scores), abs=1e-12)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_neither_batches_nor_processes_nor_order_change_a_digit(processes, batch):
    random = np.random.default_rng(3)
    confidence = torch.from_numpy(random.random(240).round(2))
    unknown, ids = torch.arange(240) < 40, torch.arange(240)
    batches = torch.from_numpy(random.permutation(240)).split(batch)
    shares = [UnknownPictureScores() for _ in range(processes)]
    for turn, rows in enumerate(batches):
        shares[turn % processes].update(confidence[rows], unknown[rows], ids[rows], torch.ones(len(rows), dtype=torch.bool))
        # A row that is there to make batches equal.
        shares[turn % processes].update(torch.tensor([math.nan]), torch.tensor([True]), torch.tensor([0]), torch.tensor([False]))
    merged = shares[0]
    # What torchmetrics makes of lists that it gathers.
    for name, join in merged._reductions.items():
        setattr(merged, name, join([row for share in shares for row in getattr(share, name)]))
    sides = -confidence[:40].numpy(), -confidence[40:].numpy()
    expected = {**{key: measure(*sides) for key, measure in MEASURES.items()}, "aupr_chance": 1 / 6}
    assert merged.compute() == expected


def test_only_known_pictures_are_an_error():
    scores = UnknownPictureScores()
    scores.update(torch.rand(3), torch.zeros(3, dtype=torch.bool), torch.arange(3), torch.ones(3, dtype=torch.bool))
    with pytest.raises(DnaError, match="no unknown picture"):
        scores.compute()
