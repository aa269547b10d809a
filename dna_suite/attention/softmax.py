"""Softmax attention: the baseline."""

from __future__ import annotations

from torch import Tensor

from dna_suite.attention.operator import Operator, Streams
from dna_suite.attention.registry import register
from dna_suite.attention.scores import Scores


@register("softmax")
class Softmax(Operator):
    """s(Q K') V (Vaswani et al. 2017)."""

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """One fused call."""
        return scores.softmax(s["q"], s["k"], s["v"])

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """The map, times V."""
        return scores.weigh(self.maps(s, scores)["positive"], s["v"])

    def maps(self, s: Streams, scores: Scores) -> dict[str, Tensor]:
        """{"positive": s(Q K')}."""
        return {"positive": scores.softmax_map(scores.logits(s["q"], s["k"]))}
