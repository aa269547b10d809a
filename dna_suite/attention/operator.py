"""The interface of an attention operator: projected streams in, mixed values out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dna_suite.attention.scores import Scores
from dna_suite.errors import DnaError

Streams = dict[str, Tensor]


class Operator(nn.Module):
    """One attention formula on projected and split heads.

    A subclass gives the same function twice, as fused kernel calls and written out with every map in memory; `Scores.fused`
    says which one runs. Its parameters stay float32 in a half-precision model.

    Args:
        heads: attention heads.
        head_dim: channels of the host's head; the operator's own are `widths(head_dim)`.
        layer: index of the layer that the operator stands in.
    """

    streams: ClassVar[tuple[str, ...]] = ("q", "k", "v")
    logit_products: ClassVar[int] = 1
    value_products: ClassVar[int] = 1
    # Query width over the host's head width, value width over the query width, and logit maps that share one query's channels.
    inner_ratio: ClassVar[float] = 1.0
    value_ratio: ClassVar[float] = 1.0
    parts: ClassVar[int] = 1
    # Tokens up to which a training step on a CPU is faster written out, its maps being small: measured at width 768, one thread,
    # 1.3 to 1.7 times at 50 tokens, 1.2 to 1.5 times at 100.
    small: ClassVar[int] = 128
    needs_layer: ClassVar[bool] = False
    # The fused form reaches its keys through the softmax, softmin and both of its scores alone, so that these can run over a
    # pattern's diagonals.
    runs_diagonals: ClassVar[bool] = False

    def __init__(self, heads: int, head_dim: int, layer: int = 0) -> None:
        super().__init__()
        self.heads, self.head_dim, self.layer = heads, head_dim, layer
        self.widths(head_dim)

    @classmethod
    def widths(cls, head_dim: int) -> tuple[int, int]:
        """Channels of a query or key, and of a value, where the host's head has `head_dim`.

        Raises:
            DnaError: they are no whole numbers, or the query's channels cannot be shared by its maps.
        """
        inner, value = head_dim * cls.inner_ratio, head_dim * cls.inner_ratio * cls.value_ratio
        if inner % cls.parts or value % 1:
            least = next(n for n in range(1, 1000) if n * cls.inner_ratio % cls.parts == 0)
            raise DnaError(
                f"attention {cls.__name__}: head width {head_dim} (model.dim / model.heads) must be a multiple of {least}"
            )
        return int(inner), int(value)

    @classmethod
    def logit_scale(cls, scale: float) -> float:
        """The factor of one logit map's q k', from the host's factor of a whole head: it follows the width to the power -1/2."""
        return scale * (cls.inner_ratio / cls.parts) ** -0.5

    def forward(self, s: Streams, scores: Scores) -> Tensor:
        """Mixes the values.

        Args:
            s: one [batch, heads, tokens, channels] tensor for each name in `streams`, of the channels that `widths` gives.
            scores: scale, bias, mask and dropout of this call.

        Returns:
            [batch, heads, queries, value_dim].
        """
        return self.mix_fused(s, scores) if scores.runs_fused else self.mix_written_out(s, scores)

    def choose_path(self, s: Streams, scores: Scores) -> Scores:
        """The scores, asking for the written-out path where it is measured faster: a training step on a CPU with few tokens."""
        q, keys = s["q"], s["k"].shape[-2]
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in s.values())
        is_small = q.device.type == "cpu" and q.shape[-2] * keys <= self.small**2
        return replace(scores, fused=False) if is_small and trains and scores.fused and scores.diagonals is None else scores

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """The formula as calls of scaled_dot_product_attention, or in tiles: no map is kept."""
        raise NotImplementedError

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """The formula with its maps in memory."""
        raise NotImplementedError

    def maps(self, s: Streams, scores: Scores) -> dict[str, Tensor]:
        """The maps before dropout and their weights, none of them negative, each [batch, heads, queries, keys]."""
        raise NotImplementedError

    def constants(self) -> dict[str, Any]:
        """The operator's learned numbers as plain values, named as the arguments of `reference.compute_reference`."""
        return {}

    def multiply_adds(self, heads: int, queries: int, keys: int, head_dim: int) -> int:
        """Multiply-adds of one sample, written out, with every multiply-add counted once; `head_dim` is the query's."""
        channels = self.logit_products * head_dim + self.value_products * int(head_dim * self.value_ratio)
        return channels * heads * queries * keys

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Lets parameters follow the model to a device or to float64, but not to half precision.

        Next to 0.5 bfloat16 numbers lie 0.002 apart: smaller updates would vanish.
        """

        def move(t: Tensor) -> Tensor:
            moved = fn(t)
            return t.to(moved.device) if moved.dtype in (torch.float16, torch.bfloat16) else moved

        return super()._apply(move, recurse)
