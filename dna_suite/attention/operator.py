"""The interface of an attention operator: projected streams in, mixed values out."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from dna_suite.attention.scores import Scores

Streams = dict[str, Tensor]


class Operator(nn.Module):
    """One attention formula on projected and split heads.

    A subclass gives the same function twice, as fused kernel calls and written out with every map in memory; `Scores.fused`
    says which one runs.

    Args:
        heads: attention heads.
        head_dim: channels of a query, key and value.
        layer: index of the layer that the operator stands in.
    """

    streams: ClassVar[tuple[str, ...]] = ("q", "k", "v")
    logit_products: ClassVar[int] = 1
    value_products: ClassVar[int] = 1

    def __init__(self, heads: int, head_dim: int, layer: int = 0) -> None:
        super().__init__()
        self.heads, self.head_dim, self.layer = heads, head_dim, layer

    def forward(self, s: Streams, scores: Scores) -> Tensor:
        """Mixes the values.

        Args:
            s: one [batch, heads, tokens, head_dim] tensor for each name in `streams`.
            scores: scale, bias, mask and dropout of this call.

        Returns:
            [batch, heads, queries, value_dim].
        """
        return self.mix_fused(s, scores) if scores.runs_fused else self.mix_written_out(s, scores)

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """The formula as calls of scaled_dot_product_attention: no map is kept."""
        raise NotImplementedError

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """The formula with its maps in memory."""
        raise NotImplementedError

    def maps(self, s: Streams, scores: Scores) -> dict[str, Tensor]:
        """The maps before dropout and alpha, none of them negative, each [batch, heads, queries, keys]."""
        raise NotImplementedError

    def multiply_adds(self, heads: int, queries: int, keys: int, head_dim: int) -> int:
        """Multiply-adds of one sample, written out, with every multiply-add counted once."""
        return (self.logit_products + self.value_products) * heads * queries * keys * head_dim
