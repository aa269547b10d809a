"""Denoising attention (DnA): softmax of one logit map plus alpha times softmin of another, and its ablations."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dna_suite.attention.operator import Operator, Streams
from dna_suite.attention.registry import register
from dna_suite.attention.scores import Scores
from dna_suite.attention.tile_maps import SharedMap
from dna_suite.attention.tiled import mix_tiled, prefers_tiles

SHARED = SharedMap()


class Denoising(Operator):
    """What the denoising operators share: alpha, one learned weight of the negative branch for each head.

    Args:
        heads: attention heads.
        head_dim: channels of a query, key and value.
        layer: index of the layer that the operator stands in.
        alpha: start value; None leaves the weight at 1 and learns nothing (A± of DnA appendix C.5).
    """

    runs_diagonals: ClassVar[bool] = True

    def __init__(self, heads: int, head_dim: int, layer: int = 0, alpha: float | None = 0.5) -> None:
        super().__init__(heads, head_dim, layer)
        self.start = alpha
        self.alpha = None if alpha is None else nn.Parameter(torch.full((heads,), alpha, dtype=torch.float32))

    def reset_parameters(self) -> None:
        """Sets alpha to its start value."""
        if self.alpha is not None and self.start is not None:
            nn.init.constant_(self.alpha, self.start)

    def combine(self, positive: Tensor, negative: Tensor) -> Tensor:
        """positive + alpha negative, for outputs or maps [batch, heads, ...], in the type of the positive branch."""
        if self.alpha is None:
            return positive + negative
        # The sum runs in float32 and is rounded once.
        return torch.addcmul(positive, self.alpha.view(-1, 1, 1), negative).to(positive.dtype)

    def constants(self) -> dict[str, Any]:
        """{"alpha": one number for each head}."""
        return {} if self.alpha is None else {"alpha": self.alpha.tolist()}


@register("dna")
class DnA(Denoising):
    """s(Q+ K') V+ + a s^(Q- K') V- (DnA section 3.2, Algorithm 1)."""

    streams: ClassVar[tuple[str, ...]] = ("q", "q_neg", "k", "v", "v_neg")
    logit_products = 2
    value_products = 2

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """Two fused calls."""
        return self.combine(scores.softmax(s["q"], s["k"], s["v"]), scores.softmin(s["q_neg"], s["k"], s["v_neg"]))

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """Each map times its own values."""
        maps = self.maps(s, scores)
        return self.combine(scores.weigh(maps["positive"], s["v"]), scores.weigh(maps["negative"], s["v_neg"]))

    def maps(self, s: Streams, scores: Scores) -> dict[str, Tensor]:
        """{"positive": s(Q+ K'), "negative": s^(Q- K')}."""
        return {
            "positive": scores.softmax_map(scores.logits(s["q"], s["k"])),
            "negative": scores.softmin_map(scores.logits(s["q_neg"], s["k"])),
        }


@register("dna-q")
class DnAQuery(DnA):
    """(s(Q+ K') + a s^(Q- K')) V (DnA appendix C.5, Q±V)."""

    streams: ClassVar[tuple[str, ...]] = ("q", "q_neg", "k", "v")
    logit_products = 2
    value_products = 1

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """One fused call with both query streams."""
        return self.combine(*scores.both(s["q"], s["q_neg"], s["k"], s["v"]))

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """The maps are merged before they meet V."""
        maps = self.maps(s, scores)
        return self.combine(scores.drop(maps["positive"]), scores.drop(maps["negative"])).to(s["v"].dtype) @ s["v"]


@register("dna-v")
class DnAValue(Denoising):
    """s(Q K') V+ + a s^(Q K') V- (DnA appendix C.5, QV±)."""

    streams: ClassVar[tuple[str, ...]] = ("q", "k", "v", "v_neg")
    logit_products = 1
    value_products = 2
    # One logit matrix serves both maps when written out: still 1.05 times as fast a step at 197 tokens.
    small = 208

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """Two fused calls."""
        scores = scores.bind(s["q"])
        return self.combine(scores.softmax(s["q"], s["k"], s["v"]), scores.softmin(s["q"], s["k"], s["v_neg"]))

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """Two maps of one logit matrix, each times its own values."""
        maps = self.maps(s, scores)
        return self.combine(scores.weigh(maps["positive"], s["v"]), scores.weigh(maps["negative"], s["v_neg"]))

    def maps(self, s: Streams, scores: Scores) -> dict[str, Tensor]:
        """{"positive": s(Q K'), "negative": s^(Q K')}."""
        logits = scores.logits(s["q"], s["k"])
        return {"positive": scores.softmax_map(logits), "negative": scores.softmin_map(logits)}


@register("dna-shared")
class DnAShared(DnAValue):
    """(s(Q K') + a s^(Q K')) V (DnA appendix C.5, A± with alpha)."""

    streams: ClassVar[tuple[str, ...]] = ("q", "k", "v")
    logit_products = 1
    value_products = 1
    small = Denoising.small

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """In tiles on a CPU; elsewhere one fused call with the queries and their negatives."""
        if prefers_tiles(s["q"], scores):
            return mix_tiled(SHARED, s["q"], s["k"], s["v"], scores, self.alpha)
        return self.combine(*scores.bind(s["q"]).both(s["q"], s["q"], s["k"], s["v"]))

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """Two maps of one logit matrix, merged before they meet V."""
        maps = self.maps(s, scores)
        return self.combine(scores.drop(maps["positive"]), scores.drop(maps["negative"])).to(s["v"].dtype) @ s["v"]


@register("dna-shared-plain")
class DnASharedPlain(DnAShared):
    """(s(Q K') + s^(Q K')) V (DnA appendix C.5, A±)."""

    def __init__(self, heads: int, head_dim: int, layer: int = 0) -> None:
        super().__init__(heads, head_dim, layer, alpha=None)
