"""The integer sequences of Fibottention: rows of the Wythoff array and the windows of the heads, in exact arithmetic."""

from __future__ import annotations

from math import isqrt


def floor_phi(n: int) -> int:
    """floor(n phi), phi the golden ratio."""
    return (n + isqrt(5 * n * n)) // 2


def floor_phi_squared(n: int) -> int:
    """floor(n phi^2), as phi^2 = phi + 1."""
    return n + floor_phi(n)


def first_terms(variant: str, row: int) -> tuple[int, int]:
    """The two terms that a row starts with.

    Args:
        variant: "wythoff" is the Wythoff array, in which every integer stands once; "wythoff_modified" begins two columns further
            left; "literal" takes the printed formula at its word, and its rows overlap.
        row: from 1.

    Source: Fibottention (arXiv 2406.19391), a_i and b_i; the released code computes the array.
    """
    a = floor_phi(row)
    return {
        "wythoff": (floor_phi(a), floor_phi_squared(a)),
        "wythoff_modified": (row - 1, a),
        "literal": (a, floor_phi_squared(a)),
    }[variant]


def fibonacci_terms(first: int, second: int, window: int) -> list[int]:
    """The terms of f_n = f_(n-1) + f_(n-2) that are at most `window`, repeats included."""
    terms = []
    while first <= window:
        terms.append(first)
        first, second = second, first + second
    return terms


def released_terms(first: int, second: int, window: int) -> list[int]:
    """The terms as Fibottention's released generator returns them: the first one stays even above the window.

    Source: Charlotte-CharMLab/Fibottention, commit adf9919.
    """
    terms = [first, second]
    while terms[-1] <= window:
        terms.append(terms[-1] + terms[-2])
    return terms[:-1]


def head_windows(heads: int, window_min: int, window_max: int) -> list[int]:
    """The window w_i of each head: from `window_min` to `window_max` in steps rounded down; one head has `window_min`."""
    steps = max(heads - 1, 1)
    return [window_min + (window_max - window_min) * i // steps for i in range(heads)]
