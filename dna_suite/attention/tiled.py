"""Attention in tiles of queries: any map of a query's logits, exactly, and no map kept for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dna_suite.attention.scores import Scores
from dna_suite.attention.tile_maps import Kept, Room, Sums, TileMap
from dna_suite.errors import DnaError

# Elements of a tile of logits at most. On a CPU the buffers of a tile share the cache, and each tile costs some 0.1 ms of Python;
# a GPU wants few launches.
CPU_TILE, GPU_TILE = 5 * 2**17, 2**26


def mix_tiled(tile_map: TileMap, q: Tensor, k: Tensor, v: Tensor, scores: Scores, alpha: Tensor | None = None) -> Tensor:
    """map(scale Q K' + bias) V, exactly, in float32 tiles for half-precision streams.

    Kept for the backward pass are the streams, the result and the log-sum-exps of its rows; it computes the tiles anew. It is not
    differentiable twice, and not exported: both are for the written-out path.

    Args:
        tile_map: the map.
        q: [batch, heads, queries, head_dim].
        k: [batch, heads, keys, head_dim].
        v: [batch, heads, keys, value_dim].
        scores: scale, bias and mask; no dropout.
        alpha: weight of the negative branch, [heads].

    Returns:
        [batch, heads, queries, value_dim], in the type of the values.

    Raises:
        DnaError: in the backward pass, where a second derivative is asked for.
    """
    assert scores.dropout == 0
    bias, mask = scores.tensors(q)
    return _Tiled.apply(tile_map, scores.scale, q, k, v, bias, mask, alpha)


def can_tile(q: Tensor, scores: Scores) -> bool:
    """Whether tiles can run: not with dropout, scores of a host's own, shapes alone, or under an export."""
    plain = type(scores) is Scores and scores.dropout == 0 and scores.diagonals is None
    return plain and not (q.is_meta or torch.jit.is_tracing() or torch.compiler.is_exporting())


def prefers_tiles(q: Tensor, scores: Scores) -> bool:
    """Whether tiles run and are faster than fused kernels that compute the same logits twice or on padded widths: on a CPU."""
    return q.device.type == "cpu" and can_tile(q, scores)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tile_map: TileMap,
        scale: float,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        mask: Tensor | None,
        alpha: Tensor | None,
    ) -> Tensor:
        ctx.tile_map, ctx.scale = tile_map, scale
        # Heads after tokens, as the output projection reads them.
        out = v.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[-1]).transpose(1, 2)
        sums = torch.empty(tile_map.maps, *q.shape[:3], 1, dtype=_wide(q), device=q.device)
        tiles = _Tiles(tile_map, scale, q, k, bias, mask, alpha, sums, known=False)
        with torch.autocast(q.device.type, enabled=False):
            for group in tiles.groups():
                values = _take(v, group)
                result = out[group].split(tiles.step, 2)
                for tile, part in zip(tiles.weigh(group), result, strict=True):
                    _put(part, torch.bmm(tile.weights, values))
        ctx.save_for_backward(out, q, k, v, bias, mask, alpha, sums)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # Gradients are recorded here for a second derivative alone; silence would make its terms constants.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise DnaError("attention in tiles has no second derivative: run the model inside written_out(model)")
        out, q, k, v, bias, mask, alpha, sums = ctx.saved_tensors
        tiles = _Tiles(ctx.tile_map, ctx.scale, q, k, bias, mask, alpha, sums, known=True)
        of_q, of_k, of_v = _empty_like(q), _empty_like(k), _empty_like(v)
        of_bias = torch.zeros_like(bias, dtype=_wide(bias)) if bias is not None and ctx.needs_input_grad[5] else None
        of_alpha = None if alpha is None else torch.zeros_like(alpha)
        with torch.autocast(q.device.type, enabled=False):
            for group in tiles.groups():
                keys, values = _take(k, group), _take(v, group)
                key_sum, value_sum = torch.zeros_like(keys), torch.zeros_like(values)
                arrivals, results = (_take(t, group).split(tiles.step, 1) for t in (gradient, out))
                parts = of_q[group].split(tiles.step, 2)
                for tile, arriving, result, part in zip(tiles.weigh(group), arrivals, results, parts, strict=True):
                    value_sum.baddbmm_(tile.weights.transpose(-2, -1), arriving)
                    of_logits, of_weight = tiles.differentiate(tile, arriving, values, result, out.dtype)
                    _put(part, torch.bmm(of_logits, keys).mul_(ctx.scale))
                    key_sum.baddbmm_(of_logits.transpose(-2, -1), tile.queries)
                    if of_bias is not None:
                        total = _part(of_bias, tile.place)
                        total += of_logits.view(*part.shape[:3], -1).sum_to_size(total.shape)
                    if of_alpha is not None and of_weight is not None:
                        of_alpha[group[1]] += of_weight.view(part.shape[:2]).sum(0)
                _put(of_k[group], key_sum)
                _put(of_v[group], value_sum)
        return None, None, of_q, of_k, of_v, None if of_bias is None else of_bias.to(bias.dtype), None, of_alpha


class _Tile(NamedTuple):
    """Where it lies, scaled queries [heads, rows, head_dim], weights, what the map kept, and alpha of the tile's heads."""

    place: tuple[slice, slice, slice]
    queries: Tensor
    weights: Tensor
    kept: Kept
    alpha: Tensor | None


class _Tiles:
    """The tiles of one call."""

    def __init__(
        self,
        tile_map: TileMap,
        scale: float,
        q: Tensor,
        k: Tensor,
        bias: Tensor | None,
        mask: Tensor | None,
        alpha: Tensor | None,
        sums: Tensor,
        known: bool,
    ) -> None:
        self.tile_map, self.scale, self.q, self.k = tile_map, scale, q, k
        self.bias, self.mask, self.alpha = bias, mask, alpha
        self.sums, self.known, self.room = sums, known, Room()
        self.limit = CPU_TILE if q.device.type == "cpu" else GPU_TILE
        # Query rows of one tile.
        self.step = _divide(q.shape[-2], q.shape[-2] * k.shape[-2], self.limit)

    def groups(self) -> Iterator[tuple[slice, slice]]:
        """Samples and heads whose logits are computed together."""
        batch, heads, queries, _ = self.q.shape
        sample = max(1, heads * queries * self.k.shape[-2])
        samples, together = max(1, self.limit // sample), _divide(heads, sample, self.limit)
        for b in range(0, batch, samples):
            for h in range(0, heads, together):
                yield slice(b, b + samples), slice(h, h + together)

    def weigh(self, group: tuple[slice, slice]) -> Iterator[_Tile]:
        """The tiles of a group, with their weights; the next one overwrites them."""
        keys = _take(self.k, group).transpose(-2, -1)
        shape = self.q[group].shape[:2]
        sums = self.sums[:, *group].view(-1, len(keys), self.q.shape[-2], 1).split(self.step, 2)
        alpha = None if self.alpha is None else self.alpha[group[1]].to(keys.dtype).repeat(shape[0]).view(-1, 1, 1)
        for index, queries in enumerate((_take(self.q, group) * self.scale).split(self.step, 1)):
            place = (*group, slice(index * self.step, (index + 1) * self.step))
            logits = self.room.take("logits", (*queries.shape[:2], keys.shape[-1]), queries)
            torch.bmm(queries, keys, out=logits)
            whole = (*shape, *logits.shape[1:])
            if self.bias is not None:
                logits += _part(self.bias, place).expand(whole).reshape(logits.shape)
            blocked = None if self.mask is None else ~_part(self.mask, place).expand(whole).reshape(logits.shape)
            rows = Sums(sums[index], self.known)
            yield _Tile(place, queries, *self.tile_map.weigh(logits, blocked, alpha, rows, self.room), alpha)

    def differentiate(
        self, tile: _Tile, arriving: Tensor, values: Tensor, out: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor | None]:
        """Gradients of one tile's logits and alpha."""
        gradient = self.room.take("gradient", tile.weights.shape, tile.weights)
        torch.bmm(arriving, values.transpose(-2, -1), out=gradient)
        # sum(G W) over keys is sum(g out) over channels, unless the output was rounded to half precision.
        rows = (arriving * out if dtype == out.dtype else gradient * tile.weights).sum(-1, keepdim=True)
        return self.tile_map.differentiate(gradient, rows, tile.kept, tile.alpha, self.room)


def _divide(count: int, size: int, limit: int) -> int:
    """How many of `count` equal pieces of `size` elements in all go together, in shares of nearly equal length below a limit."""
    return max(1, math.ceil(count / math.ceil(size / limit))) if size else max(1, count)


def _wide(t: Tensor) -> torch.dtype:
    return torch.float32 if t.dtype in (torch.float16, torch.bfloat16) else t.dtype


def _take(t: Tensor, place: tuple[slice, slice]) -> Tensor:
    """A part of a stream as [samples x heads, tokens, channels], at least float32; a view where its layout allows."""
    return t[place].flatten(0, 1).to(_wide(t))


def _put(target: Tensor, part: Tensor) -> None:
    """Rows of [samples x heads, tokens, channels] to where `target` holds them."""
    target.copy_(part.view(target.shape))


def _part(t: Tensor, place: tuple[slice, slice, slice]) -> Tensor:
    """The part of a bias or mask that belongs to a tile; axes of length 1 stay."""
    full = slice(None)
    return t[tuple(index if size > 1 else full for index, size in zip(place, t.shape[:3], strict=True))]


def _empty_like(t: Tensor) -> Tensor:
    """Heads after tokens, as the projections' gradients are read."""
    return torch.empty_like(t.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
