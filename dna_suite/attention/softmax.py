"""Softmax attention: the baseline, and two wider ones with the parameter count of denoising attention."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from dna_suite.attention.operator import Operator, Streams
from dna_suite.attention.registry import register
from dna_suite.attention.scores import Scores
from dna_suite.attention.tile_maps import SoftmaxMap
from dna_suite.attention.tiled import mix_tiled, prefers_tiles

SOFTMAX = SoftmaxMap()


@register("softmax")
class Softmax(Operator):
    """s(Q K') V (Vaswani et al. 2017)."""

    runs_diagonals: ClassVar[bool] = True

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """One fused call."""
        return scores.softmax(s["q"], s["k"], s["v"])

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """The map, times V."""
        return scores.weigh(self.maps(s, scores)["positive"], s["v"])

    def maps(self, s: Streams, scores: Scores) -> dict[str, Tensor]:
        """{"positive": s(Q K')}."""
        return {"positive": scores.softmax_map(scores.logits(s["q"], s["k"]))}


@register("softmax-wide")
class SoftmaxWide(Softmax):
    """s(Q K') V with queries, keys and values 1.5 times as wide: ViT-B‡ of DnA table 12 (12 heads of 96 at width 768)."""

    inner_ratio: ClassVar[float] = 1.5


@register("softmax-value")
class SoftmaxValue(Softmax):
    """s(Q K') V with values twice as wide: ViT-B† of DnA table 12, whose printed 17.7 GFLOPs no layer of that kind has."""

    value_ratio: ClassVar[float] = 2.0
    # Written out, a training step is still 1.2 times as fast at 197 tokens.
    small: ClassVar[int] = 208

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """In tiles on a CPU; elsewhere one fused call with Q and K padded to the width of V, which those kernels ask for."""
        q, k, v = s["q"], s["k"], s["v"]
        if prefers_tiles(q, scores):
            return mix_tiled(SOFTMAX, q, k, v, scores)
        missing = v.shape[-1] - q.shape[-1]
        return scores.bind(q).softmax(F.pad(q, (0, missing)), F.pad(k, (0, missing)), v)
