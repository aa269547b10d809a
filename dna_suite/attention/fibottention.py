"""Fibottention: Fibonacci distances that differ from head to head."""

from __future__ import annotations

import random
from typing import Any

from dna_suite.attention.fibonacci import fibonacci_terms, first_terms, head_windows, released_terms
from dna_suite.attention.pattern import DiagonalPattern, Distances
from dna_suite.errors import DnaError


class Fibottention(DiagonalPattern):
    """Head-wise Fibonacci distances in growing windows (Fibottention, arXiv 2406.19391).

    Args:
        variant: see `fibonacci.first_terms`.
        window_min: window of the first head, patches.
        window_max: window of the last head, patches; 0 is a third of the patches.
        shuffle: give each layer its own order of the heads' sets.
        seed: of that order; seed 0 gives the order of the released code.
        empty_heads: heads whose first distance exceeds their window are refused, see prefix tokens only, or take the row of
            "wythoff_modified".
        released_edges: let a head keep its first distance even above its window, as the released generator does.
    """

    def __init__(
        self,
        *args: Any,
        variant: str = "wythoff",
        window_min: int = 5,
        window_max: int = 0,
        shuffle: bool = True,
        seed: int = 0,
        empty_heads: str = "refuse",
        released_edges: bool = False,
        **common: Any,
    ) -> None:
        super().__init__(*args, **common)
        if window_max and window_max < window_min:
            raise DnaError(f"attention.options.window_max {window_max}: at least window_min {window_min} is needed, or 0")
        self.variant, self.window_min, self.window_max = variant, window_min, window_max
        self.empty_heads, self.released_edges = empty_heads, released_edges
        order = list(range(self.heads))
        if shuffle:
            # Text, as sums of two numbers let seeds of one layer meet.
            random.Random(f"{seed} {self.layer}" if seed else self.layer).shuffle(order)
        self.order = tuple(order)

    def windows(self, patches: int) -> list[int]:
        """The window of each set, before the order of the layer.

        Raises:
            DnaError: a window exceeds the patches.
        """
        largest = self.window_max or patches // 3
        if not self.window_min <= largest <= patches:
            least = f"; window_max 0 needs {3 * self.window_min} patches" if not self.window_max else ""
            raise DnaError(
                f"attention.options.window_min {self.window_min}, window_max {largest} with {patches} patches: "
                f"window_min <= window_max <= {patches} is needed{least}"
            )
        return head_windows(self.heads, self.window_min, largest)

    def sets(self, patches: int) -> Distances:
        """The distances of each set, before the order of the layer; empty ones are not yet dealt with."""
        return tuple(
            _kept(self._terms(self.variant, row, window), patches) for row, window in enumerate(self.windows(patches), 1)
        )

    def distances(self, patches: int) -> Distances:
        """The kept distances of each head, in the order of the layer.

        Raises:
            DnaError: a window does not fit, or a head keeps no patch and `empty_heads` is "refuse".
        """
        sets, windows = list(self.sets(patches)), self.windows(patches)
        empty = [row for row, kept in enumerate(sets, 1) if not kept]
        if empty and self.empty_heads == "modified":
            for row in empty:
                sets[row - 1] = _kept(self._terms("wythoff_modified", row, windows[row - 1]), patches)
            empty = [row for row in empty if not sets[row - 1]]
        if empty and self.empty_heads != "prefix":
            raise DnaError(self._explain(empty, windows, patches))
        return tuple(sets[row] for row in self.order)

    def _terms(self, variant: str, row: int, window: int) -> list[int]:
        return (released_terms if self.released_edges else fibonacci_terms)(*first_terms(variant, row), window)

    def _explain(self, empty: list[int], windows: list[int], patches: int) -> str:
        listed = ", ".join(f"{row} (window {windows[row - 1]})" for row in empty)
        fewer = f"at most {empty[0] - 1} of them" if empty[0] > 1 else "wider windows"
        way = "" if self.window_max else f"{self._least_patches()} patches, "
        return (
            f"fibottention {self.variant} with {self.heads} heads and {patches} patches leaves heads {listed} without any key; "
            f"{way}{fewer}, or attention.options.empty_heads prefix or modified would do"
        )

    def _least_patches(self) -> int:
        """The smallest number of patches at which no head is empty."""
        # The first term of row h grows as h, its window as N / 3: 64 patches for each head are more than enough.
        for patches in range(3 * self.window_min, 3 * self.window_min + 64 * self.heads):
            if all(self.sets(patches)):
                return patches
        raise AssertionError(self.heads)


def _kept(terms: list[int], patches: int) -> tuple[int, ...]:
    return tuple(sorted({term for term in terms if term < patches}))
