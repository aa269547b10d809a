"""Turns, ratios and their spread, with clocks that the test sets."""

from __future__ import annotations

import pytest

from dna_suite.cli import bench_timing
from dna_suite.cli.bench_timing import Cost, compare, quartiles, summarise, take_turns


class Clock:
    """A clock that calls move: the wall's goes twice as fast as CPU time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.log: list[str] = []

    def call(self, name: str, seconds: float):
        def run() -> None:
            self.log.append(name)
            self.seconds += seconds

        return run

    def read(self, device: str = "cpu") -> Cost:
        return Cost(2 * self.seconds, self.seconds)


def test_short_calls_repeat_and_the_order_turns_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(bench_timing, "now", clock.read)
    costs = take_turns({"short": clock.call("s", 0.005), "long": clock.call("l", 1.0)}, rounds=3)
    # Two calls each to warm up and to see how long it takes; 0.05 s of wall time are five short calls.
    assert "".join(clock.log) == "ssll" + "sssssl" + "lsssss" + "sssssl"
    assert [cost.wall for cost in costs["short"]] == pytest.approx([0.01] * 3)
    assert [cost.cpu for cost in costs["long"]] == pytest.approx([1.0] * 3)


def test_ratios_are_taken_round_by_round() -> None:
    above = [Cost(2.0, 3.0), Cost(40.0, 3.0), Cost(6.0, 3.0)]
    below = [Cost(1.0, 1.0), Cost(10.0, 1.0), Cost(2.0, 1.0)]
    found = compare(above, below)
    # 2, 4 and 3: one slow round of the machine moves no ratio, but would move a ratio of medians.
    assert found == {
        "ratio": 3.0,
        "quartiles": [2.5, 3.5],
        "cpu_ratio": 3.0,
        "cpu_quartiles": [3.0, 3.0],
        "rounds": 3,
    }


def test_milliseconds_and_quartiles() -> None:
    assert summarise([Cost(0.001, 0.002), Cost(0.003, 0.002), Cost(0.002, 0.004)]) == {
        "ms": 2.0,
        "quartiles": [1.5, 2.5],
        "cpu_ms": 2.0,
    }
    assert quartiles([7.0]) == [7.0, 7.0]
