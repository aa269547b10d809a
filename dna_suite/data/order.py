"""Which sample is drawn when: training order, evaluation order and per-sample seeds, all functions of a position."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from dna_suite.data.batches import Lazily
from dna_suite.data.position import seed_of

Key = tuple[int, int, int]
IDLE = -1


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


class EpochBatches(Sampler[list[Key]]):
    """Batches of keys (epoch, index, repeat) of one process, in an order that depends on the seed and the epoch only.

    Global batch b is the b-th consecutive piece of the epoch's order; a process takes every world-th sample of it, or, where
    samples are repeated, one consecutive part of it, so that copies of a picture meet in one process and are decoded once.
    Shares have the same size either way. A process left without a sample in the last batch takes one with repeat = IDLE and
    weight 0, because the others wait for it in collectives.

    Iterating starts where the optimiser steps done say, and starts there again when it is asked again. `len` is the whole
    epoch without `limit`, since Lightning applies its own limits to it.

    Args:
        length: samples of the data set; an epoch has this many draws also when samples are repeated.
        batch: samples per process and micro-batch.
        seed: seed of the run.
        world: number of processes.
        rank: index of this process.
        accumulate: micro-batches of one optimiser step.
        repeats: adjacent copies of each sample (repeated augmentation, Hoffer et al. 2020).
        limit: batches of an epoch, None for all.
        done: gives the number of optimiser steps done.

    Source: Lightning-AI/pytorch-lightning#20412 and #6960 report the epochs that repeat themselves which this order rules out.
    """

    def __init__(
        self,
        length: int,
        batch: int,
        *,
        seed: int = 0,
        world: int = 1,
        rank: int = 0,
        accumulate: int = 1,
        repeats: int = 1,
        limit: int | None = None,
        done: Callable[[], int] = lambda: 0,
    ) -> None:
        assert length > 0
        assert batch > 0
        assert 0 <= rank < world
        assert accumulate > 0
        assert repeats > 0
        self.length, self.batch, self.seed = length, batch, seed
        self.world, self.rank = world, rank
        self.accumulate, self.repeats, self.done = accumulate, repeats, done
        self.batches = len(self) if limit is None else min(limit, len(self))

    def __len__(self) -> int:
        return ceil_div(self.length, self.batch * self.world)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one epoch; a shorter last window is a step."""
        return ceil_div(self.batches, self.accumulate)

    def order(self, epoch: int) -> np.ndarray:
        """Indices [length] in the order in which an epoch draws them; copies of a sample are adjacent."""
        order = np.random.default_rng([self.seed, epoch]).permutation(self.length)
        drawn = order[: ceil_div(self.length, self.repeats)]
        return np.repeat(drawn, self.repeats)[: self.length]

    def size(self, batch_idx: int) -> int:
        """Samples of all processes in a global batch."""
        return min(self.batch * self.world, self.length - batch_idx * self.batch * self.world)

    def weight(self, batch_idx: int, present: int | None = None) -> float:
        """What the mean loss of this process's micro-batch is multiplied with: accumulate * world * n_here / n_window.

        With DDP's mean over processes and Lightning's division by `accumulate`, gradients then are those of the mean over all
        samples of the optimiser step, also in a short last batch and a short last window. Full windows give exactly 1.

        Args:
            batch_idx: micro-batch of the epoch.
            present: samples that the micro-batch really holds, where unreadable ones were left out; None for all of them.
        """
        first = batch_idx // self.accumulate * self.accumulate
        window = range(first, min(first + self.accumulate, self.batches))
        n_window = sum(self.size(b) for b in window)
        n_here = ceil_div(self.size(batch_idx) - self.rank, self.world) if present is None else present
        return self.accumulate * self.world * n_here / n_window

    def keys(self, epoch: int, order: np.ndarray, batch_idx: int) -> list[Key]:
        """The keys of this process in one micro-batch of an epoch with that order."""
        start = batch_idx * self.batch * self.world
        places = np.arange(start, start + self.size(batch_idx))
        share = places[self.rank :: self.world] if self.repeats == 1 else np.array_split(places, self.world)[self.rank]
        if len(share) == 0:
            return [(epoch, int(order[start]), IDLE)]
        return [(epoch, index, place % self.repeats) for index, place in zip(order[share].tolist(), share.tolist(), strict=True)]

    def __iter__(self) -> Iterator[list[Key]]:
        epoch, step = divmod(self.done(), self.steps_per_epoch)
        order = self.order(epoch)
        for batch_idx in range(step * self.accumulate, self.batches):
            yield self.keys(epoch, order, batch_idx)

    def set_epoch(self, epoch: int) -> None:
        """Ignored: the epoch follows from the steps done, which Lightning's own count does not do after a resume."""


class EvalBatches(Sampler[list[tuple[int, bool]]]):
    """Batches of keys (index, counted): batch k of the whole set goes to process k mod world, whole.

    A batch then has the same rows for any number of processes. Every process gets equally many batches; where its turn is empty
    it takes sample 0 with counted = False.

    Args:
        length: samples of the data set.
        batch: samples per batch.
        world: number of processes.
        rank: index of this process.
    """

    def __init__(self, length: int, batch: int, *, world: int = 1, rank: int = 0) -> None:
        assert length > 0
        assert batch > 0
        assert 0 <= rank < world
        self.length, self.batch, self.world, self.rank = length, batch, world, rank

    def __len__(self) -> int:
        return ceil_div(ceil_div(self.length, self.batch), self.world)

    def __iter__(self) -> Iterator[list[tuple[int, bool]]]:
        for turn in range(len(self)):
            start = (turn * self.world + self.rank) * self.batch
            indices = range(start, min(start + self.batch, self.length))
            yield [(index, True) for index in indices] or [(0, False)]

    def set_epoch(self, epoch: int) -> None:
        """Ignored: evaluation has one order."""


class Seeded(Dataset[dict[str, Any]]):
    """A data set asked by keys (epoch, index, repeat), with Python, numpy and torch seeded from the key before each sample.

    Nothing is restored afterwards: the training loop seeds torch for the step after the batch was fetched.

    Args:
        samples: data set whose samples are dictionaries.
        seed: seed of the run.
    """

    def __init__(self, samples: Dataset[Mapping[str, Any]], seed: int) -> None:
        self.samples, self.seed = samples, seed

    def __getitem__(self, key: Key) -> dict[str, Any]:
        epoch, index, repeat = key
        seed_all(seed_of("sample", self.seed, epoch, index, repeat))
        return mark(self.samples[index], index, repeat != IDLE)

    def __getitems__(self, keys: list[Key]) -> Lazily:
        return Lazily(self.__getitem__, keys)


class Counted(Dataset[dict[str, Any]]):
    """A data set asked by keys (index, counted); the mark is passed on.

    Args:
        samples: data set whose samples are dictionaries.
    """

    def __init__(self, samples: Dataset[Mapping[str, Any]]) -> None:
        self.samples = samples

    def __getitem__(self, key: tuple[int, bool]) -> dict[str, Any]:
        index, counted = key
        return mark(self.samples[index], index, counted)

    def __getitems__(self, keys: list[tuple[int, bool]]) -> Lazily:
        return Lazily(self.__getitem__, keys)


def mark(sample: Mapping[str, Any], index: int, counted: bool) -> dict[str, Any]:
    """The sample with its index and whether it counts; a sample that says of itself that it does not, never does."""
    return {**sample, "index": index, "counted": counted and sample.get("counted", True)}


def seed_all(number: int) -> None:
    """Seed Python, numpy and torch's CPU generator from one 64-bit number."""
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    # torch.manual_seed would also queue a CUDA call with a formatted traceback: 150 times the cost of this.
    torch.default_generator.manual_seed(number)


def draw_uniform(seed: int, keys: Sequence[Key] | np.ndarray, slots: int) -> np.ndarray:
    """Uniform numbers that are functions of (seed, key, slot), for whole batches of resident data.

    Args:
        seed: seed of the run.
        keys: n keys (epoch, index, repeat), or an integer array [n, 3] of them.
        slots: numbers per key.

    Returns:
        [n, slots] in [0, 1), the same for a key whatever else is in the batch.

    Source: the mixing steps of SplitMix64 (Steele, Lea and Flood 2014), once per integer of the position.
    """
    columns = np.asarray(keys, dtype=np.int64).astype(np.uint64).reshape(len(keys), 3)
    state = mix_bits(np.full(len(keys), seed, dtype=np.uint64))
    for column in columns.T:
        state = mix_bits(state ^ column)
    numbers = mix_bits(state[:, None] ^ np.arange(slots, dtype=np.uint64))
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mix_bits(x: np.ndarray) -> np.ndarray:
    """One SplitMix64 output per 64-bit state."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
