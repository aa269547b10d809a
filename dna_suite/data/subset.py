"""A part of a data set that keeps its classes in balance."""

from __future__ import annotations

import numpy as np

from dna_suite.errors import DnaError


def choose_balanced(labels: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Indices of `number` samples, drawn so that no class has two more than another that still has samples left.

    Args:
        labels: [n] class index of each sample.
        number: samples wanted; at least n gives all of them.
        seed: another seed draws other samples.

    Returns:
        [min(number, n)] indices, ascending.
    """
    generator = np.random.default_rng([seed, len(labels)])
    shuffled = generator.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    turns, _ = count_turns(labels[by_class])
    seats = generator.permutation(int(labels.max()) + 1)[labels[by_class]]
    return np.sort(by_class[np.lexsort((seats, turns))[:number]])


def hold_out(labels: np.ndarray, part: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the samples that stay, and of a class-balanced part that is held out, both ascending.

    Args:
        labels: [n] class index of each sample.
        part: samples to hold out, or, between 0 and 1, a part of n.
        seed: another seed draws other samples.

    Raises:
        DnaError: nothing, or nothing of a class, would stay.
    """
    number = part if isinstance(part, int) else max(1, round(part * len(labels)))
    chosen = choose_balanced(labels, number, seed)
    rest = np.setdiff1d(np.arange(len(labels)), chosen, assume_unique=True)
    before, after = np.unique(labels), np.unique(labels[rest])
    if len(after) < len(before):
        gone = len(before) - len(after)
        raise DnaError(f"data.holdout {part} of {len(labels)} training samples leaves none of {gone} of {len(before)} classes")
    return rest, chosen


def count_turns(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For labels [n] in ascending order: the place of each sample in its class from 0, and the size of its class, both [n]."""
    _, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    return np.arange(len(labels)) - np.repeat(first, sizes), np.repeat(sizes, sizes)
