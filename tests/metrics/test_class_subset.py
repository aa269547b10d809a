"""From the logits of all classes to the scores of ImageNet-A, -R and -O, against the values of the sets' authors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dna_suite.metrics.calibration import aurra, calibration_error
from dna_suite.metrics.class_subset import subset_confidence, subset_top1
from dna_suite.metrics.ood import auroc, average_precision, fpr_at_recall

FOLDER = Path(__file__).parents[1] / "golden"
PIPELINE = {case["set"]: case for case in json.loads((FOLDER / "robustness_golden.json").read_text())["pipeline"]}
SUBSETS = json.loads((FOLDER / "imagenet_subsets.json").read_text())["class_indices"]
ALL = torch.arange(1000)
MEASURES = {"auroc": auroc, "aupr": average_precision, "fpr95": fpr_at_recall}


def drawn(name, seed):
    """Logits of 1,500 samples of a set, the columns of its classes and of the right ones."""
    random = np.random.default_rng(seed)
    logits, labels, lift = random.standard_normal((1500, 1000)), random.integers(0, 200, 1500), random.random(1500)
    columns = np.array(SUBSETS[name])
    logits[np.arange(1500), columns[labels]] += 5 * lift
    assert labels.sum() == PIPELINE[name]["check"]["lab_sum"]
    return torch.from_numpy(logits * 1.5), torch.from_numpy(columns), torch.from_numpy(columns[labels])


def scored(logits, columns, labels):
    confidence, predicted = subset_confidence(logits, columns)
    values = confidence.numpy(), (predicted == labels).numpy()
    return {
        "acc1": subset_top1(logits, labels, columns),
        "rmsce": calibration_error(*values),
        "rmsce_incl_last": calibration_error(*values, last_bin=True),
        "aurra": aurra(*values),
        "mean_conf": values[0].mean(),
    }


@pytest.mark.parametrize(("name", "seed"), [("A", 30), ("R", 31)])
def test_the_classes_are_selected_before_the_softmax(name, seed):
    case = PIPELINE[name]
    logits, columns, labels = drawn(name, seed)
    found = scored(logits, columns, labels)
    assert found == pytest.approx(case["masked_200_float64"], abs=1e-9)
    narrow = scored(logits.float(), columns, labels)
    # float32 logits: the authors' softmax is float32 too, 2^-24 relative; here it is float64.
    assert {key: narrow[key] for key in ("acc1", "rmsce", "aurra")} == pytest.approx(
        case["masked_200_float32_as_original"], abs=1e-6
    )
    wrong = scored(logits, ALL, labels)
    for key, value in case["unmasked_1000_for_contrast"].items():
        assert wrong[key] == pytest.approx(value, abs=1e-9)
        assert abs(found[key] - value) > 0.05
    late = logits.softmax(1)[:, columns].amax(1).numpy()
    late_error = calibration_error(late, (subset_confidence(logits, columns)[1] == labels).numpy())
    assert late_error == pytest.approx(case["mask_after_1000way_softmax_for_contrast"]["rmsce"], abs=1e-9)
    assert abs(found["rmsce"] - late_error) > 0.1


def test_unknown_pictures_are_scored_by_the_negative_confidence_among_the_set_s_classes():
    case, columns = PIPELINE["O"], np.array(SUBSETS["O"])
    random = np.random.default_rng(32)
    known, labels = random.standard_normal((2000, 1000)), random.integers(0, 200, 2000)
    known[np.arange(2000), columns[labels]] += 4 * random.random(2000)
    unknown = random.standard_normal((400, 1000))
    unknown[np.arange(400), columns[random.integers(0, 200, 400)]] += 2.5 * random.random(400)
    sides = [torch.from_numpy(side * 1.5) for side in (unknown, known)]
    assert float(sides[1].sum()) == pytest.approx(case["check"]["li_sum"], rel=1e-9)
    columns = torch.from_numpy(columns)

    def found(score):
        scores = [score(side).numpy() for side in sides]
        return {key: measure(*scores) for key, measure in MEASURES.items()}

    right = found(lambda side: -subset_confidence(side, columns)[0])
    assert right == pytest.approx(case["masked_200"], abs=1e-9)
    others = {
        "unmasked_1000_for_contrast": found(lambda side: -subset_confidence(side, ALL)[0]),
        "max_logit_200_for_contrast": found(lambda side: -side[:, columns].amax(1)),
        "wrong_sign_for_contrast": found(lambda side: subset_confidence(side, columns)[0]),
    }
    for name, wrong in others.items():
        assert wrong == pytest.approx(case[name], abs=1e-9), name
        assert abs(wrong["fpr95"] - right["fpr95"]) > 0.003, name


def test_a_class_outside_takes_no_part():
    logits = torch.tensor([[9.0, 5.0, 0.0, 1.0, 2.0]])
    confidence, predicted = subset_confidence(logits, torch.tensor([1, 3, 4]))
    assert predicted.tolist() == [1]
    assert float(confidence) == pytest.approx(np.exp(5) / (np.exp(5) + np.exp(1) + np.exp(2)), rel=1e-12)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_before_the_softmax(precision):
    # exp(12) is above the largest number of float16 (voxel51/fiftyone#8384), and 12 is one of bfloat16's.
    logits = torch.zeros(2, 4, dtype=precision)
    logits[0, 2], logits[1, 2] = 12, 11.5
    confidence, _ = subset_confidence(logits, torch.arange(4))
    assert confidence.tolist() == pytest.approx([np.exp(12) / (np.exp(12) + 3), np.exp(11.5) / (np.exp(11.5) + 3)], rel=1e-12)


def test_nan_is_wrong_and_its_confidence_nan():
    logits = torch.tensor([[float("nan"), 0.0, 0.0], [2.0, 1.0, float("nan")]])
    columns = torch.tensor([0, 1])
    confidence, _ = subset_confidence(logits, columns)
    assert confidence.isnan().tolist() == [True, False]
    assert subset_top1(logits, torch.tensor([0, 0]), columns) == 0.5
