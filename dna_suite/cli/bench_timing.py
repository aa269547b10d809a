"""Times of several callables taken in turns, so that other load on the machine hits all of them, and the ratios between them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import torch

# A turn lasts at least this long: shorter ones measure the clock and the scheduler.
TURN_SECONDS = 0.05
MOST_CALLS = 100


@dataclass(frozen=True)
class Cost:
    """What a call took.

    Args:
        wall: seconds on the wall's clock.
        cpu: seconds of CPU time, over all threads of this process.
    """

    wall: float
    cpu: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.wall - other.wall, self.cpu - other.cpu)

    def __truediv__(self, count: int) -> Cost:
        return Cost(self.wall / count, self.cpu / count)


def now(device: str = "cpu") -> Cost:
    """Both clocks, once the device has done what it was told."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return Cost(perf_counter(), process_time())


def take_turns(calls: Mapping[str, Callable[[], object]], rounds: int, device: str = "cpu") -> dict[str, list[Cost]]:
    """The cost of one call of each, round by round.

    A callable runs several times a turn where it is short. The order turns round each time, since a call leaves its caches to the
    next one.

    Args:
        calls: what to run, by name.
        rounds: turns of each.
        device: waited for before each reading of the clocks.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        began = now(device)
        call()
        repeats[name] = min(MOST_CALLS, max(1, math.ceil(TURN_SECONDS / max((now(device) - began).wall, 1e-9))))
    costs: dict[str, list[Cost]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(rounds):
        for name in order:
            began = now(device)
            for _ in range(repeats[name]):
                calls[name]()
            costs[name].append((now(device) - began) / repeats[name])
        order.reverse()
    return costs


def compare(above: list[Cost], below: list[Cost]) -> dict[str, Any]:
    """The ratio of two sides round by round: median, quartiles, and the median of CPU time.

    Args:
        above: costs of the side that is divided.
        below: costs of the other, of the same rounds.
    """
    ratios = [a.wall / b.wall for a, b in zip(above, below, strict=True)]
    cpu = [a.cpu / b.cpu for a, b in zip(above, below, strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "quartiles": quartiles(ratios),
        "cpu_ratio": statistics.median(cpu),
        "cpu_quartiles": quartiles(cpu),
        "rounds": len(ratios),
    }


def summarise(costs: list[Cost]) -> dict[str, Any]:
    """Milliseconds of one call: median and quartiles on the wall's clock, and the median of CPU time."""
    wall = [1e3 * cost.wall for cost in costs]
    return {
        "ms": statistics.median(wall),
        "quartiles": quartiles(wall),
        "cpu_ms": statistics.median(1e3 * cost.cpu for cost in costs),
    }


def quartiles(values: list[float]) -> list[float]:
    """Lower and upper quartile; of one value, the value twice."""
    if len(values) < 2:
        return [values[0], values[0]]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]
