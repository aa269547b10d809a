"""A part of a data set that keeps its classes in balance."""

from __future__ import annotations

import numpy as np


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


def count_turns(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For labels [n] in ascending order: the place of each sample in its class from 0, and the size of its class, both [n]."""
    _, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    return np.arange(len(labels)) - np.repeat(first, sizes), np.repeat(sizes, sizes)
