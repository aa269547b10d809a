"""Exact attention over patches at given distances: time and memory grow with tokens x offsets, not with tokens squared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


@dataclass(frozen=True)
class Diagonals:
    """Which keys each head keeps, as distances |query - key| between patches.

    Args:
        distances: for each head its distances, rising, each below `patches`; 0 is the main diagonal.
        prefix: tokens before the patches; they attend to all tokens and all tokens attend to them.
        patches: tokens behind them.
    """

    distances: tuple[tuple[int, ...], ...]
    prefix: int
    patches: int

    @property
    def pairs(self) -> int:
        """Kept pairs of query and key, over all heads, prefix included."""
        tokens = self.prefix + self.patches
        rim = len(self.distances) * (tokens**2 - self.patches**2)
        return rim + sum((1 + (o > 0)) * (self.patches - o) for head in self.distances for o in head)


def diagonal_mask(kept: Diagonals, device: torch.device) -> Tensor:
    """True at kept pairs, [1, heads, tokens, tokens], or [1, 1, tokens, tokens] where all heads keep the same."""
    distinct = kept.distances[:1] if len(set(kept.distances)) == 1 else kept.distances
    tokens = kept.prefix + kept.patches
    table = torch.tensor([[o in head for o in range(kept.patches)] for head in map(set, distinct)], device=device)
    place = torch.arange(kept.patches, device=device)
    mask = torch.ones(1, len(distinct), tokens, tokens, dtype=torch.bool, device=device)
    mask[0, :, kept.prefix :, kept.prefix :] = table[:, (place[:, None] - place).abs()]
    return mask


class Layout(NamedTuple):
    """The slots of all patches: one for each signed offset of the head that has most of them.

    Args:
        order: head of the model at each place of the layout; heads are sorted by their distances, so that layers that differ in
            the order of their heads share a layout.
        place: place of each head of the model.
        keys: row that a slot points to in the [heads * tokens] rows of a picture, int32 [heads * patches, slots].
        outside: the slot has no offset, or its offset leads outside, [heads, patches, slots]; it points to its own patch.
        queries: row of the patch that a slot belongs to, int32, flat.
        starts: first slot of each patch, int32.
        mirror: the slot that joins the same two patches the other way round, int32, flat.
    """

    order: Tensor
    place: Tensor
    keys: Tensor
    outside: Tensor
    queries: Tensor
    starts: Tensor
    mirror: Tensor


def lay_out(kept: Diagonals) -> Layout:
    """The slots of all heads, on the CPU."""
    order = sorted(range(len(kept.distances)), key=lambda head: kept.distances[head])
    shared = _lay_out_sorted(tuple(kept.distances[head] for head in order), kept.prefix, kept.patches)
    heads = torch.tensor(order, device="cpu")
    return shared._replace(order=heads, place=heads.argsort())


@lru_cache(maxsize=8)
def _lay_out_sorted(distances: tuple[tuple[int, ...], ...], prefix: int, patches: int) -> Layout:
    heads, tokens = len(distances), prefix + patches
    signed = [[-o for o in reversed(head) if o > 0] + list(head) for head in distances]
    slots = max(len(offsets) for offsets in signed)
    # Not inference tensors: the same layout serves validation and training.
    with torch.inference_mode(False), torch.device("cpu"):
        # An offset of `patches` leads outside from everywhere.
        offsets = torch.tensor([head + [patches] * (slots - len(head)) for head in signed]).view(heads, 1, slots)
        counts = torch.tensor([len(head) for head in signed]).view(heads, 1, 1)
        patch = torch.arange(patches).view(1, patches, 1)
        head = torch.arange(heads).view(heads, 1, 1)
        slot = torch.arange(slots).view(1, 1, slots)
        outside = (patch + offsets < 0) | (patch + offsets >= patches)
        keys = torch.where(outside, patch, patch + offsets)
        own = head * tokens + prefix + patch
        # Offsets stand in rising order: slot m of one patch is slot -1 - m of the other.
        mirror = torch.where(outside, slot, counts - 1 - slot) + slots * (keys + patches * head)
        return Layout(
            head.flatten(),
            head.flatten(),
            (keys + head * tokens + prefix).int().view(heads * patches, slots),
            outside,
            own.expand(heads, patches, slots).int().flatten(),
            slots * torch.arange(heads * patches, dtype=torch.int32),
            mirror.int().flatten(),
        )


def attend_diagonals(q: Tensor, k: Tensor, v: Tensor, scale: float, kept: Diagonals, zero_logit: bool = False) -> Tensor:
    """softmax(scale Q K') V over the kept pairs.

    Nothing of size tokens x tokens is made, and no row of keys or values is copied for a slot. For the backward pass q, k, v, the
    result and the probabilities of the kept pairs stay. Half precision is computed in float32 and rounded once.

    Args:
        q: queries on the CPU, [batch, heads, tokens, head_dim].
        k: keys, likewise.
        v: values, [batch, heads, tokens, value_dim].
        scale: factor of q k'.
        kept: the pairs of each head.
        zero_logit: the other pairs stay in the sum with logit 0, as in Fibottention's released code, instead of leaving it.

    Returns:
        [batch, heads, tokens, value_dim].

    Source: Fibottention (arXiv 2406.19391).
    """
    return cast(Tensor, _Attend.apply(q, k, v, scale, kept, zero_logit))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Runs the block in one thread: it is thirty short steps, and where another process holds a core, each waits for a thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Attend(torch.autograd.Function):
    """For a kept pair p = e^s / Z, written as w + base: base is the share of a logit of 0 (zero_logit), else 0."""

    @staticmethod
    @_one_thread()
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, kept: Diagonals, zero_logit: bool) -> Tensor:
        first, layout = kept.prefix, lay_out(kept)
        q, k, v = (t.index_select(1, layout.order).contiguous() for t in (q, k, v))
        with torch.autocast("cpu", enabled=False):
            queries, keys, values = _widened(q) * scale, _widened(k), _widened(v)
            mixed = values.new_empty(*q.shape[:3], v.shape[3])
            prefix = (queries[:, :, :first] @ keys.transpose(-2, -1)).softmax(dim=-1)
            mixed[:, :, :first] = prefix @ values
            logits = _multiply(queries, keys, first, layout)
            logits[..., first:].masked_fill_(layout.outside, float("-inf"))
            weights, base = _normalise(logits, q.shape[2]) if zero_logit else (logits.softmax(dim=-1), None)
            mixed[:, :, first:] = _gather(weights, values, first, layout)
            if base is not None:
                mixed[:, :, first:].addcmul_(base, values.sum(dim=2, keepdim=True))
        out = mixed.to(q.dtype).index_select(1, layout.place)
        ctx.save_for_backward(q, k, v, out, prefix, weights, base)
        ctx.scale, ctx.first, ctx.layout = scale, first, layout
        return out

    @staticmethod
    @once_differentiable
    @_one_thread()
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, prefix, weights, base = ctx.saved_tensors
        scale, first, layout = ctx.scale, ctx.first, ctx.layout
        queries, keys, values = _widened(q) * scale, _widened(k), _widened(v)
        grad, out = (_widened(t).index_select(1, layout.order).contiguous() for t in (grad, out))
        mean = (grad * out).sum(dim=-1, keepdim=True)
        slope = prefix * (grad[:, :, :first] @ values.transpose(-2, -1) - mean[:, :, :first])
        grad_q = torch.empty_like(queries)
        grad_q[:, :, :first] = slope @ keys
        grad_k = slope.transpose(-2, -1) @ queries[:, :, :first]
        grad_v = prefix.transpose(-2, -1) @ grad[:, :, :first]
        slope = _multiply(grad, values, first, layout).sub_(mean[:, :, first:])
        if base is None:
            slope *= weights
        else:
            slope *= weights + base
            slope[..., first:].masked_fill_(layout.outside, 0.0)
            grad_v += (base * grad[:, :, first:]).sum(dim=2, keepdim=True)
        grad_q[:, :, first:] = _gather(slope, keys, first, layout)
        _scatter(slope, queries, first, layout, grad_k)
        _scatter(weights, grad, first, layout, grad_v)
        grad_q *= scale
        gradients = (t.to(q.dtype).index_select(1, layout.place) for t in (grad_q, grad_k, grad_v))
        return (*gradients, None, None, None)


def _widened(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _normalise(logits: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """w and base over logits whose missing pairs have logit 0."""
    top = logits.amax(dim=-1, keepdim=True).clamp_min(0.0) if logits.shape[-1] else logits.new_zeros(*logits.shape[:-1], 1)
    rest = (-top).exp()
    w = ((logits - top).exp_() - rest).masked_fill_(logits == float("-inf"), 0.0)
    norm = tokens * rest + w.sum(dim=-1, keepdim=True)
    return w.div_(norm), rest / norm


def _multiply(a: Tensor, b: Tensor, first: int, layout: Layout) -> Tensor:
    """a b' over prefix tokens and slots: [batch, heads, tokens, dim] twice to [batch, heads, patches, prefix + slots]."""
    made = a.new_empty(*a.shape[:2], a.shape[2] - first, first + layout.keys.shape[1])
    made[..., :first] = a[:, :, first:] @ b[:, :, :first].transpose(-2, -1)
    index = layout.keys.flatten()
    for item in range(a.shape[0]):
        # What embedding_bag's backward computes for its weights is the product of one row with another for each slot.
        products = torch.ops.aten._embedding_bag_per_sample_weights_backward(
            a[item].flatten(0, 1), b[item].flatten(0, 1), index, layout.starts, layout.queries, 0
        )
        made[item, ..., first:] = products.view(layout.outside.shape)
    return made


def _gather(weights: Tensor, rows: Tensor, first: int, layout: Layout) -> Tensor:
    """Sum of the rows that slots and prefix point to: [batch, heads, patches, dim]."""
    summed = weights[..., :first] @ rows[:, :, :first]
    for item in range(rows.shape[0]):
        summed[item] += _sum_slots(weights[item, ..., first:].reshape(layout.keys.shape), rows[item], layout)
    return summed


def _scatter(weights: Tensor, rows: Tensor, first: int, layout: Layout, into: Tensor) -> None:
    """Adds each patch's row, weighted, to the tokens that its slots and the prefix point to, [batch, heads, tokens, dim].

    As every offset has its negative, what a patch receives is a sum over its own slots with the weights of their mirrors.
    """
    into[:, :, :first] += weights[..., :first].transpose(-2, -1) @ rows[:, :, first:]
    for item in range(rows.shape[0]):
        mirrored = weights[item, ..., first:].reshape(-1).index_select(0, layout.mirror)
        into[item, :, first:] += _sum_slots(mirrored.view(layout.keys.shape), rows[item], layout)


def _sum_slots(weights: Tensor, rows: Tensor, layout: Layout) -> Tensor:
    """Sum over the slots of each patch, [heads * patches, slots] and [heads, tokens, dim] to [heads, patches, dim]."""
    if layout.keys.shape[1] == 0:
        return rows.new_zeros(())
    summed = F.embedding_bag(layout.keys, rows.flatten(0, 1), mode="sum", per_sample_weights=weights)
    return summed.unflatten(0, layout.outside.shape[:2])
