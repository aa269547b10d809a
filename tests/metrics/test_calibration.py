"""Calibration against the values of the sets' authors, on inputs that are rebuilt from their recipes."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torchmetrics.classification import BinaryCalibrationError

from dna_suite.errors import DnaError
from dna_suite.metrics.calibration import CalibrationScores, aurra, calibration_error, reliability, response_curve, soft_f1

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "robustness_golden.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["calibration"]}
# name -> seed, samples, what confidence is multiplied with to be the chance of a right answer.
DRAWN = {
    "A_like": (1, 7500, 0.8),
    "R_like": (2, 30_000, 0.9),
    "val_O_like": (3, 10_000, 1.0),
    "not_multiple_250": (4, 250, 0.8),
    "n199": (5, 199, 0.8),
    "n200": (6, 200, 0.8),
    "n101": (7, 101, 0.8),
    "n100": (8, 100, 0.8),
    "n1234_beta37": (9, 1234, 0.7),
}


def drawn(name):
    seed, samples, share = DRAWN[name]
    random = np.random.default_rng(seed)
    confidence, chance = random.random(samples), random.random(samples)
    return confidence, chance < share * confidence


def tied():
    random = np.random.default_rng(11)
    return (confidence := random.random(7500).round(2)), random.random(7500) < 0.8 * confidence


def check_case(confidence, correct, results, tolerance=1e-9):
    """Every value of one golden case."""
    for key, value in results.items():
        if key in ("accuracy", "mean_conf"):
            continue
        if key in ("aurra", "soft_f1"):
            found = {"aurra": aurra, "soft_f1": soft_f1}[key](confidence, correct)
        else:
            bins, norm, size = key.rsplit("_", 2)
            norm = {"p2": "2", "p1": "1", "pinfty": "max"}[norm]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = calibration_error(confidence, correct, norm, bins == "incl_last", int(size.removeprefix("beta")))
        assert found == pytest.approx(value, abs=tolerance), key


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_cases_are_as_the_authors_code_has_them(name):
    confidence, correct = drawn(name)
    assert [confidence.sum(), correct.sum()] == pytest.approx(CASES[name]["check"]["sum"], rel=1e-12)
    check_case(confidence, correct, CASES[name]["results"])


def test_an_overconfident_classifier():
    random = np.random.default_rng(10)
    confidence = 1 - 0.995 * random.random(7500) ** 3
    check_case(confidence, random.random(7500) < 0.25, CASES["overconfident"]["results"])


@pytest.mark.parametrize("name", ["explicit23", "all_correct_conf0.5", "all_wrong_conf0.5"])
def test_cases_without_a_generator(name):
    case = CASES[name]
    confidence = np.array(case.get("conf", [0.5] * 300))
    correct = np.array(case.get("correct", [name.startswith("all_correct")] * 300), dtype=bool)
    check_case(confidence, correct, case["results"])


def test_float32_confidences_are_added_in_float64():
    random = np.random.default_rng(1)
    confidence = random.random(7500).astype(np.float32)
    correct = random.random(7500) < 0.8 * confidence.astype(np.float64)
    # The authors' code adds a hundred float32 values in float32: 2^-24 relative each.
    check_case(confidence, correct, CASES["A_like_float32_conf"]["results"], 1e-6)
    assert calibration_error(confidence, correct) == calibration_error(confidence.astype(np.float64), correct)


def test_equal_confidences_stay_in_order():
    confidence, correct = tied()
    results = CASES["ties_2dec"]["results"]
    stable = results["stable_order (conf+rank*1e-12 on stably sorted data)"]
    # The recorded order comes from adding at most 7500 * 1e-12 to the confidences, which AURRA sees the order of only.
    check_case(confidence, correct, stable, 8e-9)
    assert aurra(confidence, correct) == pytest.approx(stable["aurra"], abs=1e-12)
    bounds = results["aurra_ties_bounds"]
    # Of equal confidences the one that stands later counts as more confident.
    for key, order in (("correct_first", correct), ("wrong_first", ~correct)):
        arranged = np.lexsort((order, confidence))
        assert aurra(confidence[arranged], correct[arranged]) == pytest.approx(bounds[f"{key}_within_tie"], abs=1e-12)


def test_the_order_of_samples_without_ties_is_of_no_account():
    confidence, correct = drawn("not_multiple_250")
    order = np.random.default_rng(0).permutation(250)
    for measure in (calibration_error, aurra):
        assert measure(confidence[order], correct[order]) == measure(confidence, correct)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_does_not_hide_among_the_most_confident(value):
    # The authors' code gives 0.0378 and 0.781 here.
    random = np.random.default_rng(12)
    confidence = random.random(500)
    correct = random.random(500) < confidence
    confidence[[3, 400]] = value
    for measure in (calibration_error, aurra, soft_f1, reliability, response_curve):
        with pytest.raises(DnaError, match="2 of 500 confidences are not finite"):
            measure(confidence, correct)


@pytest.mark.parametrize("samples", [0, 1, 50, 99])
def test_samples_that_do_not_fill_a_bin_are_an_error(samples):
    # hendrycks/natural-adv-examples: IndexError.
    values = np.full(samples, 0.5), np.ones(samples, bool)
    with pytest.raises(DnaError, match=f"{samples} samples: a bin holds 100" if samples else "no sample"):
        calibration_error(*values, last_bin=True)
    if samples:
        assert aurra(*values) == 1
        assert calibration_error(*values, last_bin=True, size=samples) == 0.5


@pytest.mark.parametrize("size", [0, -1])
def test_a_bin_of_nothing_is_an_error(size):
    with pytest.raises(DnaError, match=f"bins of {size} samples"):
        calibration_error(np.full(9, 0.5), np.ones(9, bool), size=size)


@pytest.mark.parametrize("norm", ["1", "2", "max"])
def test_one_bin_that_is_left_out_is_told(norm):
    confidence, correct = drawn("n199")
    with pytest.warns(UserWarning, match="199 samples: one bin of 100"):
        assert calibration_error(confidence, correct, norm) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert calibration_error(confidence, correct, norm, last_bin=True) > 0.07
        assert calibration_error(*drawn("n200"), norm) > 0.02


def test_a_reliability_diagram_by_hand():
    confidence = np.array([0.9, 0.1, 0.3, 0.7, 0.5, 0.8, 0.2])
    correct = np.array([1, 0, 1, 1, 0, 0, 0], bool)
    bins = reliability(confidence, correct, 3)
    assert bins.samples.tolist() == [3, 4]
    assert bins.confidence == pytest.approx([0.2, 0.725], rel=1e-15)
    assert bins.accuracy == pytest.approx([1 / 3, 1 / 2], rel=1e-15)
    gaps = np.array([1 / 3 - 0.2, 0.725 - 0.5])
    assert calibration_error(confidence, correct, "2", True, 3) == pytest.approx(math.sqrt(([3, 4] * gaps**2).sum() / 7))
    # The bin that is left out keeps its place in the denominator.
    assert calibration_error(confidence, correct, "1", False, 3) == pytest.approx(3 / 7 * gaps[0])


def test_a_response_rate_curve_by_hand():
    confidence, correct = np.array([0.2, 0.9, 0.5]), np.array([1, 1, 0], bool)
    assert response_curve(confidence, correct).tolist() == [1, 1 / 2, 2 / 3]
    assert aurra(confidence, correct) == pytest.approx((1 + 1 / 2 + 2 / 3) / 3, rel=1e-15)


def test_soft_f1_without_doubt_and_without_fault_is_not_defined():
    assert math.isnan(soft_f1(np.ones(3), np.ones(3, bool)))
    assert soft_f1(np.array([0.0, 1.0]), np.array([False, True])) == 1


def test_where_a_library_s_calibration_error_is_another_number():
    given = GOLDEN["library_comparison"]["calibration_A_like_seed0_7500"]
    random = np.random.default_rng(0)
    confidence = random.random(7500)
    correct = random.random(7500) < 0.8 * confidence
    assert calibration_error(confidence, correct) == pytest.approx(given["hendrycks_rmsce"], abs=1e-9)
    # torch-uncertainty's bins of equal count are ours with the last one where a hundred divides the samples.
    all_bins = calibration_error(confidence, correct, last_bin=True)
    assert all_bins == pytest.approx(given["torch_uncertainty_adaptive_l2_75bins"], abs=1e-12)
    for bins in (15, 75):
        library = BinaryCalibrationError(n_bins=bins, norm="l2")(torch.from_numpy(confidence), torch.from_numpy(correct).long())
        # float32 inside.
        assert float(library) == pytest.approx(given[f"torchmetrics_l2_{bins}_equal_width"], abs=1e-5)
        assert min(abs(float(library) - ours) for ours in (all_bins, given["hendrycks_rmsce"])) > 4e-4
    area = aurra(confidence, correct)
    assert area == pytest.approx(given["hendrycks_aurra"], abs=1e-9)
    # A trapezoid over the same curve, as AURC is, lacks half of both ends.
    curve = response_curve(confidence, correct)
    trapezoid = (area * 7500 - (curve[0] + curve[-1]) / 2) / 7499
    assert trapezoid == pytest.approx(given["one_minus_torch_uncertainty_aurc"], abs=1e-9)
    assert trapezoid != pytest.approx(area, abs=1e-5)


def fed(confidence, correct, ids, rows, metric=None):
    """A metric that is given the samples of `rows`, batch by batch."""
    metric = metric or CalibrationScores()
    for batch in rows:
        chosen = torch.as_tensor(batch, dtype=torch.long)
        metric.update(confidence[chosen], correct[chosen], ids[chosen], torch.ones(len(chosen), dtype=torch.bool))
    return metric


def test_the_metric_has_every_score_by_name():
    generator = np.random.default_rng(DRAWN["A_like"][0])
    confidence, chance = generator.random(7500), generator.random(7500)
    correct = chance < 0.8 * confidence
    given = CASES["A_like"]["results"]
    found = fed(torch.from_numpy(confidence), torch.from_numpy(correct), torch.arange(7500), [range(7500)]).compute()
    names = {"rmsce": "p2", "mad": "p1", "max": "pinfty"}
    expected = {name: given[f"calib_err_{norm}_beta100"] for name, norm in names.items()}
    expected |= {f"{name}_all_bins": given[f"incl_last_{norm}_beta100"] for name, norm in names.items()}
    # Two summations of 7,500 float64 in other orders.
    assert found == pytest.approx({**expected, "aurra": given["aurra"], "soft_f1": given["soft_f1"]}, abs=1e-12)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_neither_batches_nor_processes_nor_order_change_a_digit(processes, batch):
    confidence, correct = (torch.from_numpy(values[:421]) for values in tied())
    ids = torch.arange(421) * 3
    whole = fed(confidence, correct, ids, [range(421)]).compute()
    assert whole["aurra"] == aurra(confidence.numpy(), correct.numpy())
    order = np.random.default_rng(processes * batch).permutation(421)
    batches = [order[start : start + batch] for start in range(0, 421, batch)]
    shares = [fed(confidence, correct, ids, batches[rank::processes]) for rank in range(processes)]
    merged = shares[0]
    # What torchmetrics makes of lists that it gathers.
    for name, join in merged._reductions.items():
        setattr(merged, name, join([row for share in shares for row in getattr(share, name)]))
    assert merged.compute() == whole
    # Ties make the order of ids matter.
    assert fed(confidence, correct, ids.flip(0), [range(421)]).compute()["aurra"] != whole["aurra"]


def test_uncounted_samples_leave_no_trace_even_if_not_finite():
    confidence, correct = (torch.from_numpy(values) for values in drawn("not_multiple_250"))
    metric = fed(confidence, correct, torch.arange(250), [range(250)])
    before = metric.compute()
    metric.update(
        torch.full((1,), math.nan), torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.long), torch.tensor([False])
    )
    assert metric.compute() == before
    assert before["aurra"] == pytest.approx(CASES["not_multiple_250"]["results"]["aurra"], abs=1e-9)


def test_only_uncounted_samples_are_an_error():
    metric = CalibrationScores()
    metric.update(torch.rand(3), torch.ones(3, dtype=torch.bool), torch.arange(3), torch.zeros(3, dtype=torch.bool))
    with pytest.raises(DnaError, match="no sample"):
        metric.compute()


def test_a_sample_that_is_counted_twice_is_our_fault():
    metric = fed(torch.full((300,), 0.5), torch.ones(300, dtype=torch.bool), torch.arange(300) % 299, [range(300)])
    with pytest.raises(AssertionError, match="counted once"):
        metric.compute()
