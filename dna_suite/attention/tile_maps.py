"""Attention maps of a tile of logits, with their derivatives: what `tiled` computes attention with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

Kept = tuple[Tensor, ...]


class Room:
    """Memory for tiles, taken again and again: fresh memory of this size costs more than the arithmetic in it."""

    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}
        self.taken: dict[tuple[str, Sequence[int]], Tensor] = {}

    def take(self, name: str, shape: Sequence[int], like: Tensor) -> Tensor:
        """Uninitialised, of a shape and of the type and device of `like`; the next tensor of that name overwrites it."""
        if (name, shape) not in self.taken:
            size = math.prod(shape)
            if name not in self.buffers or self.buffers[name].numel() < size:
                self.buffers[name] = torch.empty(size, dtype=like.dtype, device=like.device)
            self.taken[name, shape] = self.buffers[name][:size].view(*shape)
        return self.taken[name, shape]


class Sums:
    """The log-sum-exps of a tile's rows: written when the forward pass meets the logits, read when the backward pass does.

    Args:
        rows: [maps, heads, queries, 1].
        known: they were written.
    """

    def __init__(self, rows: Tensor, known: bool) -> None:
        self.rows, self.known = rows, known

    def softmax_(self, logits: Tensor, blocked: Tensor | None, index: int = 0) -> Tensor:
        """s(logits), in place; a row in which all is blocked is 0.

        Args:
            logits: [heads, queries, keys].
            blocked: True = may not attend, of the same shape.
            index: which map of the tile.
        """
        if blocked is not None:
            logits.masked_fill_(blocked, torch.finfo(logits.dtype).min)
        if self.known:
            logits.sub_(self.rows[index]).exp_()
        else:
            largest = logits.amax(-1, keepdim=True)
            total = logits.sub_(largest).exp_().sum(-1, keepdim=True)
            self.rows[index] = total.log().add_(largest)
            logits.mul_(total.reciprocal_())
        return logits if blocked is None else logits.masked_fill_(blocked, 0.0)


class TileMap:
    """How a tile of logits becomes weights of the values, and the derivative of that."""

    # Softmax maps in it, each with a log-sum-exp for every row.
    maps: ClassVar[int] = 1

    def weigh(self, logits: Tensor, blocked: Tensor | None, alpha: Tensor | None, sums: Sums, room: Room) -> tuple[Tensor, Kept]:
        """The weights, and what `differentiate` needs.

        Args:
            logits: [heads, queries, keys], at least float32; may be overwritten.
            blocked: True = may not attend, [heads, queries, keys]; weights there are 0.
            alpha: weight of the negative branch, [heads, 1, 1].
            sums: of the rows.
            room: memory.

        Returns:
            [heads, queries, keys].
        """
        raise NotImplementedError

    def differentiate(
        self, gradient: Tensor, rows: Tensor, kept: Kept, alpha: Tensor | None, room: Room
    ) -> tuple[Tensor, Tensor | None]:
        """The derivative of `weigh`; 0 where keys are blocked.

        Args:
            gradient: of the weights; may be overwritten.
            rows: sums of gradient times weights, [heads, queries, 1].
            kept: from `weigh`.
            alpha: weight of the negative branch, [heads, 1, 1].
            room: memory.

        Returns:
            The gradients of the logits, [heads, queries, keys], and of alpha, [heads, 1, 1].
        """
        raise NotImplementedError


class SoftmaxMap(TileMap):
    """s(S)."""

    def weigh(self, logits: Tensor, blocked: Tensor | None, alpha: Tensor | None, sums: Sums, room: Room) -> tuple[Tensor, Kept]:
        """s(S)."""
        weights = sums.softmax_(logits, blocked)
        return weights, (weights,)

    def differentiate(
        self, gradient: Tensor, rows: Tensor, kept: Kept, alpha: Tensor | None, room: Room
    ) -> tuple[Tensor, Tensor | None]:
        """s(S) (G - sum(G W))."""
        return gradient.sub_(rows).mul_(kept[0]), None


class CogMap(TileMap):
    """sign(S) s(abs S); S = 0 has weight 0, and stays in the sum below."""

    def weigh(self, logits: Tensor, blocked: Tensor | None, alpha: Tensor | None, sums: Sums, room: Room) -> tuple[Tensor, Kept]:
        """sign(S) s(abs S)."""
        sign = torch.sign(logits, out=room.take("sign", logits.shape, logits))
        absolute = sums.softmax_(logits.abs_(), blocked)
        weights = sign.mul_(absolute)
        return weights, (weights, absolute)

    def differentiate(
        self, gradient: Tensor, rows: Tensor, kept: Kept, alpha: Tensor | None, room: Room
    ) -> tuple[Tensor, Tensor | None]:
        """s(abs S) (G - sign(S) sum(G W))."""
        weights, absolute = kept
        return gradient.mul_(absolute).addcmul_(weights, rows, value=-1), None


class SharedMap(TileMap):
    """s(S) + a s^(S)."""

    maps: ClassVar[int] = 2

    def weigh(self, logits: Tensor, blocked: Tensor | None, alpha: Tensor | None, sums: Sums, room: Room) -> tuple[Tensor, Kept]:
        """s(S) + a s^(S)."""
        positive = logits
        negative = sums.softmax_(torch.neg(positive, out=room.take("negative", positive.shape, positive)), blocked, 1)
        positive = sums.softmax_(positive, blocked)
        weights = room.take("weights", positive.shape, positive)
        if alpha is None:
            torch.add(positive, negative, out=weights)
        else:
            torch.addcmul(positive, alpha, negative, out=weights)
        return weights, (positive, negative)

    def differentiate(
        self, gradient: Tensor, rows: Tensor, kept: Kept, alpha: Tensor | None, room: Room
    ) -> tuple[Tensor, Tensor | None]:
        """s (G - sum(G s)) - a s^ (G - sum(G s^))."""
        positive, negative = kept
        other = torch.mul(gradient, negative, out=room.take("weights", gradient.shape, gradient))
        sums = other.sum(-1, keepdim=True)
        of_alpha = None if alpha is None else sums.sum(-2, keepdim=True)
        other.addcmul_(negative, sums, value=-1)
        rest = rows - (sums if alpha is None else alpha * sums)
        gradient.mul_(positive).addcmul_(positive, rest, value=-1)
        return (gradient.sub_(other) if alpha is None else gradient.addcmul_(alpha, other, value=-1)), of_alpha
