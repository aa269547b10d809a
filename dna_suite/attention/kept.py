"""What a forward pass keeps in memory for the backward pass, counted exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor


class Kept:
    """The tensors that autograd saved, each storage once.

    Args:
        sizes: bytes of each storage.
        shapes: shape of every tensor that was saved.
    """

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.shapes: list[tuple[int, ...]] = []

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return sum(self.sizes.values())

    @property
    def largest(self) -> int:
        """Elements of the largest one; batch x heads x queries x keys or more where a map is among them."""
        return max((math.prod(shape) for shape in self.shapes), default=0)


def count_kept(forward: Callable[[], Tensor], without: Iterable[Tensor] = ()) -> Kept:
    """Runs a forward pass and counts what it saves for the backward pass.

    A saved view keeps its whole storage alive, so the storage counts, once however many tensors share it.

    Args:
        forward: makes a result that a backward pass could start from.
        without: tensors whose storages are not counted: parameters, or inputs that would be there anyway.
    """
    kept = Kept()
    left_out = {t.untyped_storage().data_ptr() for t in without}
    alive = []

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in left_out:
            kept.sizes[storage.data_ptr()] = storage.nbytes()
            kept.shapes.append(tuple(t.shape))
            # Without this a saved tensor could go, and another take its place.
            alive.append(storage)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        forward()
    return kept
