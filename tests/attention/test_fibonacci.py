"""The Wythoff array, the terms and the windows of Fibottention."""

from math import floor, sqrt

import pytest

from dna_suite.attention.fibonacci import (
    fibonacci_terms,
    first_terms,
    floor_phi,
    floor_phi_squared,
    head_windows,
    released_terms,
)

from .pattern_cases import CASES, GOLDEN

PHI = (1 + sqrt(5)) / 2


def test_floors_are_those_of_the_golden_ratio():
    # A float holds n phi^2 to 1e-11 here, and none of these lies so near to an integer.
    assert [floor_phi(n) for n in range(20000)] == [floor(n * PHI) for n in range(20000)]
    assert [floor_phi_squared(n) for n in range(20000)] == [floor(n * PHI * PHI) for n in range(20000)]


def test_floors_of_numbers_that_no_float_holds():
    # floor(F(n) phi) is F(n+1) - 1 for even n and F(n+1) for odd n.
    f = [0, 1]
    while len(f) < 203:
        f.append(f[-1] + f[-2])
    assert [floor_phi(f[n]) for n in range(100, 202)] == [f[n + 1] - (n % 2 == 0) for n in range(100, 202)]


def test_every_integer_stands_once_in_the_wythoff_array():
    terms = [term for row in range(1, 2000) for term in fibonacci_terms(*first_terms("wythoff", row), 2000)]
    assert sorted(terms) == list(range(1, 2001))


def test_the_printed_formula_misses_and_repeats_integers():
    terms = [term for row in range(1, 200) for term in fibonacci_terms(*first_terms("literal", row), 60)]
    assert sorted(set(range(1, 53)) - set(terms)) == [18, 26, 47, 52]
    assert terms.count(3) == 2


def test_modified_rows_begin_two_columns_further_left():
    for row in range(1, 300):
        first, second = first_terms("wythoff_modified", row)
        assert (first + second, first + 2 * second) == first_terms("wythoff", row)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_golden_windows_and_terms(case):
    windows = head_windows(case["h"], case["wmin"], case["wmax"])
    assert windows == case["windows"]
    rows = [fibonacci_terms(*first_terms(case["variant"], row), window) for row, window in enumerate(windows, 1)]
    assert rows == case["raw_sequences"]


def test_the_released_generator():
    cases = [case for case in GOLDEN["official_code"] if case["source"] == "HEAD"]
    assert len(cases) == 36
    for case in cases:
        windows = head_windows(case["h"], case["wmin"], case["wmax"])
        rows = [released_terms(*first_terms(case["variant"], row), window) for row, window in enumerate(windows, 1)]
        assert rows == case["raw_sequences"], case


def test_windows_are_divided_in_integers():
    assert head_windows(12, 5, 65)[-1] == 65
    assert int((65 - 5) / 11 * 11) == 65 - 5 - 1
    assert head_windows(1, 5, 65) == [5]
