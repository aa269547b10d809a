"""Cog attention: softmax of absolute logits, with the sign of each logit put back."""

from __future__ import annotations

from torch import Tensor

from dna_suite.attention.operator import Operator, Streams
from dna_suite.attention.registry import register
from dna_suite.attention.scores import Scores
from dna_suite.attention.tile_maps import CogMap
from dna_suite.attention.tiled import can_tile, mix_tiled

COG = CogMap()


@register("cog")
class Cog(Operator):
    """sign(S) s(abs S) V, S = Q K' (Lv et al. 2024). The bias is part of S; S = 0 gives weight 0."""

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """In tiles, each computed once more in the backward pass; written out with dropout."""
        if not can_tile(s["q"], scores):
            return self.mix_written_out(s, scores)
        return mix_tiled(COG, s["q"], s["k"], s["v"], scores)

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """The signed map, times V."""
        sign, weights = self._split(s, scores)
        return scores.weigh(sign * weights, s["v"])

    def maps(self, s: Streams, scores: Scores) -> dict[str, Tensor]:
        """The weights of keys with S > 0 as "positive" and of those with S < 0 as "negative"; their difference is the map."""
        sign, weights = self._split(s, scores)
        return {"positive": weights * (sign > 0), "negative": weights * (sign < 0)}

    def _split(self, s: Streams, scores: Scores) -> tuple[Tensor, Tensor]:
        logits = scores.logits(s["q"], s["k"])
        if scores.mask is not None and scores.mask_mode == "zero_logit":
            logits = logits.masked_fill(~scores.mask, 0.0)
        return logits.detach().sign(), scores.softmax_map(logits.abs())
