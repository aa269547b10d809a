"""Attention in the place of timm's `GPSA` and `MHSA`, in ConViT."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from dna_suite.attention.denoising import Denoising
from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.operator import Operator, Streams
from dna_suite.attention.registry import build_attention
from dna_suite.attention.scores import Bias, Scores
from dna_suite.attention.softmax import Softmax
from dna_suite.backbones.place import Place, adopt
from dna_suite.errors import DnaError


@dataclass(frozen=True, kw_only=True)
class GatedScores(Scores):
    """Scores whose softmax is mixed with a positional map: (1 - g) s(Q K') + g P. Softmin stays as it is.

    Args:
        gate: g, broadcast to [batch, heads, queries, keys].
        positions: P, [1, heads, queries, keys].
    """

    gate: Tensor
    positions: Tensor

    def softmax(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """((1 - g) s(Q K') + g P) V: one fused call and one product."""
        return self._mix(super().softmax(q, k, v), self.positions.to(v.dtype) @ v)

    def both(self, q: Tensor, q_neg: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The gated softmax of Q+ and the softmin of Q-, each times V."""
        positive, negative = super().both(q, q_neg, k, v)
        return self._mix(positive, self.positions.to(v.dtype) @ v), negative

    def softmax_map(self, logits: Tensor) -> Tensor:
        """(1 - g) s(logits) + g P."""
        return self._mix(super().softmax_map(logits), self.positions)

    def softmin_map(self, logits: Tensor) -> Tensor:
        """s^(logits), without the positional map."""
        return super().softmax_map(-logits)

    def _mix(self, content: Tensor, positional: Tensor) -> Tensor:
        return torch.lerp(content, positional.to(content.dtype), self.gate.to(content.dtype))


class PositionalAttention(MultiHeadAttention):
    """Attention gated with a positional map, as ConViT's `GPSA`: ((1 - g) s(Q K') + g P) V with g = sigmoid(gating_param).

    P = s(pos_proj(dx, dy, dx^2 + dy^2)) of the places on a square grid. A denoising operator has it in its positive branch only:
    ((1 - g) s(Q+ K') + g P) V+ + a s^(Q- K') V-. An operator with one signed map is gated as a whole: (1 - g) A(Q, K, V) + g P V.

    Args:
        operator: mixes the values.
        locality_strength: factor of the start values of `pos_proj`.
        **settings: as for `MultiHeadAttention`.

    Raises:
        DnaError: the operator has no values v.
    """

    rel_indices: Tensor

    def __init__(self, operator: Operator, *, locality_strength: float = 1.0, **settings: Any) -> None:
        if "v" not in operator.streams:
            raise DnaError(f"{type(operator).__name__} cannot stand in GPSA: its streams {operator.streams} have no values v")
        super().__init__(operator, **settings)
        weight = self.proj.weight
        self.locality_strength = locality_strength
        # A softmax or denoising operator takes one softmax for its positive map, from the scores.
        self.gates_scores = isinstance(operator, Softmax | Denoising)
        self.pos_proj = nn.Linear(3, self.heads, device=weight.device, dtype=weight.dtype)
        self.gating_param = nn.Parameter(torch.ones(self.heads, device=weight.device, dtype=weight.dtype))
        self.register_buffer("rel_indices", weight.new_zeros(0, 0, 3), persistent=False)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Attends within `x`.

        Args:
            x: tokens of a square grid, row by row, [batch, tokens, dim].

        Returns:
            [batch, tokens, dim].

        Raises:
            DnaError: the tokens are no square.
        """
        if self.rel_indices.shape[0] != x.shape[1]:
            self.rel_indices = relative_places(x.shape[1]).to(self.pos_proj.weight)
        return super().forward(x)

    def make_scores(self, s: Streams, bias: Bias | None, mask: Tensor | None) -> Scores:
        """Scores with the positional map in their softmax; dropout acts on the gated map, which is then written out."""
        scores = super().make_scores(s, bias, mask)
        if not self.gates_scores:
            return scores
        given = {field.name: getattr(scores, field.name) for field in fields(scores)}
        given["fused"] = scores.fused and scores.dropout == 0
        return GatedScores(**given, gate=self.gate_of_heads(), positions=self.positional_map(scores))

    def mix(self, s: Streams, scores: Scores) -> Tensor:
        """The values under the gated maps."""
        content = super().mix(s, scores)
        if self.gates_scores:
            return content
        positional = scores.weigh(self.positional_map(scores), s["v"])
        return torch.lerp(content, positional.to(content.dtype), self.gate_of_heads().to(content.dtype))

    def gate_of_heads(self) -> Tensor:
        """g of each head, [heads, 1, 1]."""
        return self.gating_param.sigmoid().view(-1, 1, 1)

    def positional_map(self, scores: Scores) -> Tensor:
        """P under the mask of the scores, [1, heads, tokens, tokens]."""
        logits = self.pos_proj(self.rel_indices).permute(2, 0, 1).unsqueeze(0)
        return scores.softmax_map(logits)

    def init_non_persistent_buffers(self) -> None:
        """Drops the cached places, which no state dict holds; the next call makes them."""
        self.rel_indices = self.pos_proj.weight.new_zeros(0, 0, 3)

    def reset_parameters(self) -> None:
        """Truncated normal weights of deviation 0.02, v the identity, each head looking at one neighbour, gates 1."""
        super().reset_parameters()
        if "gating_param" not in self._parameters:
            return
        nn.init.ones_(self.gating_param)
        nn.init.eye_(cast(nn.Linear, self.get_submodule("v")).weight)
        side = int(self.heads**0.5)
        centre = (side - 1) / 2 if side % 2 == 0 else side // 2
        with torch.no_grad():
            for head in range(side * side):
                dx, dy = head // side - centre, head % side - centre
                self.pos_proj.weight[head] = self.pos_proj.weight.new_tensor([2 * dx, 2 * dy, -1.0]) * self.locality_strength


def relative_places(tokens: int) -> Tensor:
    """(dx, dy, dx^2 + dy^2) of each key seen from each query, [tokens, tokens, 3], for a square grid row by row.

    Raises:
        DnaError: the tokens are no square.
    """
    side = math.isqrt(tokens)
    if side * side != tokens:
        raise DnaError(f"GPSA needs a square grid of patches: {tokens} tokens are none")
    place = torch.arange(tokens)
    dx = (place % side)[None, :] - (place % side)[:, None]
    dy = (place // side)[None, :] - (place // side)[:, None]
    return torch.stack((dx, dy, dx**2 + dy**2), dim=-1).float()


def adapt_gpsa(host: Any, place: Place) -> MultiHeadAttention:
    """The layer that takes the place of a ConViT `GPSA`: its weights, gate, positional projection and dropout are kept.

    Raises:
        DnaError: the operator has no values v.
    """
    local = Place(place.spec, place.layer, place.depth)
    kind = partial(PositionalAttention, locality_strength=host.locality_strength)
    return _adapt(host, local, host.v.weight, host.v.bias is not None, kind)


def adapt_mhsa(host: Any, place: Place) -> MultiHeadAttention:
    """The layer that takes the place of a ConViT `MHSA`: its weights and dropout are kept."""
    return _adapt(host, place, host.qkv.weight, host.qkv.bias is not None, MultiHeadAttention)


def _adapt(
    host: Any, place: Place, weight: Tensor, has_bias: bool, layer_class: Callable[..., MultiHeadAttention]
) -> MultiHeadAttention:
    dim = host.proj.in_features
    layer = build_attention(
        place.spec,
        dim=dim,
        heads=host.num_heads,
        layer=place.layer,
        depth=place.depth,
        prefix=place.prefix,
        qkv_bias=has_bias,
        scale=host.scale,
        attn_drop=host.attn_drop.p,
        proj_drop=host.proj_drop.p,
        device=weight.device,
        dtype=weight.dtype,
        layer_class=layer_class,
    )
    adopt(layer, host.state_dict())
    return layer.train(host.training)
