"""Mean corruption error."""

import pytest

from dna_suite.data.corruptions import KINDS, SEVERITIES
from dna_suite.metrics.corruption import ALEXNET_ERRORS, mean_corruption_error, mean_over_severities


def accuracies(error):
    """(kind, severity) -> accuracy, where `error` gives the error."""
    return {(kind, severity): 1 - error(kind, severity) for kind in KINDS for severity in SEVERITIES}


def test_alexnet_s_own_errors_are_1():
    assert list(ALEXNET_ERRORS) == list(KINDS)
    # Severities that are unequal about its mean count the same.
    found = mean_corruption_error(accuracies(lambda kind, severity: ALEXNET_ERRORS[kind] + 0.02 * (severity - 3)))
    assert found == pytest.approx(1, rel=1e-12)


def test_a_kind_counts_by_how_hard_it_is_for_alexnet():
    # No error but on one kind: half the pictures wrong.
    easy = mean_corruption_error(accuracies(lambda kind, _: 0.5 * (kind == "brightness")))
    hard = mean_corruption_error(accuracies(lambda kind, _: 0.5 * (kind == "impulse_noise")))
    assert easy == pytest.approx(0.5 / 0.564592 / 15, rel=1e-12)
    assert hard == pytest.approx(0.5 / 0.922640 / 15, rel=1e-12)


def test_the_published_row_of_a_resnet_50():
    # Hendrycks and Dietterich 2019, Table 1: the corruption errors of each kind and their mean, 76.7, all rounded.
    published = dict(zip(KINDS, (80, 82, 83, 75, 89, 78, 80, 78, 75, 66, 57, 71, 85, 77, 77), strict=True))
    found = mean_corruption_error(accuracies(lambda kind, _: published[kind] / 100 * ALEXNET_ERRORS[kind]))
    assert 100 * found == pytest.approx(76.7, abs=0.5)


def test_a_part_of_them_has_no_mean_corruption_error():
    whole = accuracies(lambda kind, severity: 0.5)
    assert mean_corruption_error({key: value for key, value in whole.items() if key != ("fog", 5)}) is None
    assert mean_corruption_error({}) is None
    assert mean_over_severities({("fog", 1): 0.5, ("snow", 2): 1.0, ("fog", 5): 0.25}) == {"fog": 0.375, "snow": 1.0}
