"""Differential attention: the difference of two softmax maps, each of half the channels of a head."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dna_suite.attention.operator import Operator, Streams
from dna_suite.attention.registry import register
from dna_suite.attention.scores import Scores

VECTORS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


def start_lambda(layer: int) -> float:
    """0.8 - 0.6 exp(-0.3 layer), with the first layer's index 0 (Ye et al. 2024, section 2.1; timm)."""
    return 0.8 - 0.6 * math.exp(-0.3 * layer)


@register("differential")
class Differential(Operator):
    """(1 - l0) RMS((s(Q1 K1') - l s(Q2 K2')) V), l = exp(lq1 lk1) - exp(lq2 lk2) + l0 (Ye et al. 2024; timm DiffAttention).

    The first half of a head's query and key channels makes map 1, the second half map 2.

    Args:
        heads: attention heads.
        head_dim: channels of a query, key and value.
        layer: index of the layer, which l0 depends on.
        plain: learn l itself, one number that starts at l0, and leave out the norm and its factor.
    """

    parts: ClassVar[int] = 2
    needs_layer: ClassVar[bool] = True
    runs_diagonals: ClassVar[bool] = True

    def __init__(self, heads: int, head_dim: int, layer: int, plain: bool = False) -> None:
        super().__init__(heads, head_dim, layer)
        self.plain, self.lambda_init = plain, start_lambda(layer)
        if plain:
            self.lambda_plain = nn.Parameter(torch.empty((), dtype=torch.float32))
        else:
            for name in VECTORS:
                self.register_parameter(name, nn.Parameter(torch.empty(head_dim // 2, dtype=torch.float32)))
            self.sub_norm = nn.RMSNorm(head_dim, eps=1e-5, dtype=torch.float32)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal vectors of deviation 0.1 and a norm weight of 1; the plain form's number is l0."""
        if self.plain:
            nn.init.constant_(self.lambda_plain, self.lambda_init)
            return
        for name in VECTORS:
            nn.init.normal_(self.get_parameter(name), std=0.1)
        self.sub_norm.reset_parameters()

    def compute_lambda(self) -> Tensor:
        """l, the weight of map 2, [1, 1, 1], at least float32."""
        if self.plain:
            return self.lambda_plain.view(1, 1, 1)
        q1, k1, q2, k2 = (getattr(self, name) for name in VECTORS)
        return ((q1 * k1).sum().exp() - (q2 * k2).sum().exp() + self.lambda_init).view(1, 1, 1)

    def mix_fused(self, s: Streams, scores: Scores) -> Tensor:
        """Two fused calls on whole keys, with the other half of the queries zero, so that all widths are equal."""
        scores, half = scores.bind(s["q"]), self.head_dim // 2
        first = F.pad(s["q"][..., :half], (0, half))
        second = F.pad(s["q"][..., half:], (half, 0))
        return self._subtract(scores.softmax(first, s["k"], s["v"]), scores.softmax(second, s["k"], s["v"]))

    def mix_written_out(self, s: Streams, scores: Scores) -> Tensor:
        """The maps are subtracted before they meet V."""
        maps = self.maps(s, scores)
        merged = torch.addcmul(scores.drop(maps["positive"]), self.compute_lambda(), scores.drop(maps["negative"]), value=-1)
        return self._norm(merged.to(s["v"].dtype) @ s["v"], s["v"].dtype)

    def maps(self, s: Streams, scores: Scores) -> dict[str, Tensor]:
        """{"positive": s(Q1 K1'), "negative": s(Q2 K2')}."""
        scores = scores.bind(s["q"])
        (q1, q2), (k1, k2) = s["q"].chunk(2, dim=-1), s["k"].chunk(2, dim=-1)
        return {
            "positive": scores.softmax_map(scores.logits(q1, k1)),
            "negative": scores.softmax_map(scores.logits(q2, k2)),
        }

    def constants(self) -> dict[str, Any]:
        """The vectors, or the plain number, the layer and the norm's weight."""
        if self.plain:
            return {"lambda_plain": self.lambda_plain.item()}
        vectors = [self.get_parameter(name).tolist() for name in VECTORS]
        return {"lambda_vectors": vectors, "layer": self.layer, "norm_weight": self.sub_norm.weight.tolist()}

    def _subtract(self, first: Tensor, second: Tensor) -> Tensor:
        # Lambda has an axis, so that half-precision outputs are summed and normed in float32 and rounded once.
        return self._norm(torch.addcmul(first, self.compute_lambda(), second, value=-1), first.dtype)

    def _norm(self, out: Tensor, dtype: torch.dtype) -> Tensor:
        if self.plain:
            return out.to(dtype)
        weight = self.sub_norm.weight * (1 - self.lambda_init)
        return F.rms_norm(out.to(weight.dtype), weight.shape, weight, self.sub_norm.eps).to(dtype)
