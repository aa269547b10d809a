"""Attention in the place of timm's `Attention`, in vision transformers and DeiT."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.registry import build_attention
from dna_suite.attention.scores import split_mask
from dna_suite.backbones.place import Place, adopt
from dna_suite.errors import DnaError


class TimmAttention(MultiHeadAttention):
    """Attention with the call of `timm.layers.Attention`."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:  # type: ignore[override]
        """Attends within `x`.

        Args:
            x: tokens, [batch, tokens, dim].
            attn_mask: boolean (True = may attend) or additive, broadcast to [batch, heads, tokens, tokens].
            is_causal: let no token attend to a later one, in addition to the mask (timm raises, or drops the mask).

        Returns:
            [batch, tokens, dim_out].
        """
        bias, mask = split_mask(attn_mask)
        if is_causal:
            causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
            mask = causal if mask is None else mask & causal
        return super().forward(x, bias=bias, mask=mask)


def adapt_attention(host: Any, place: Place) -> MultiHeadAttention:
    """The layer that takes the place of a `timm.layers.Attention`: its weights, norms, gate, scale and dropout are kept.

    Raises:
        DnaError: the host has a part that the layer does not know, or norms of another head width than the operator's.
    """
    parts: dict[str, Any] = dict(host.named_children())
    unknown = sorted(parts.keys() - {"qkv", "q_norm", "k_norm", "attn_drop", "norm", "gate", "proj", "proj_drop"})
    if unknown or not isinstance(parts.get("qkv"), nn.Linear):
        raise DnaError(f"{type(host).__name__}: cannot replace an attention layer with {', '.join(unknown) or 'no packed qkv'}")
    layer = build_attention(
        place.spec,
        dim=parts["qkv"].in_features,
        heads=host.num_heads,
        layer=place.layer,
        depth=place.depth,
        prefix=place.prefix,
        head_dim=host.head_dim,
        dim_out=parts["proj"].out_features,
        qkv_bias=parts["qkv"].bias is not None,
        proj_bias=parts["proj"].bias is not None,
        scale=host.scale,
        attn_drop=parts["attn_drop"].p,
        proj_drop=parts["proj_drop"].p,
        q_norm=parts["q_norm"],
        k_norm=parts["k_norm"],
        norm=parts["norm"],
        gated="gate" in parts,
        device=parts["qkv"].weight.device,
        dtype=parts["qkv"].weight.dtype,
        layer_class=TimmAttention,
    )
    adopt(layer, host.state_dict())
    return layer.train(host.training)
