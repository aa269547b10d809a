"""Replaces the attention layers of models from other libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from timm.layers.attention import Attention
from torch import Tensor, nn

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.options import check_attention
from dna_suite.attention.registry import build_attention, choose_spec
from dna_suite.attention.scores import split_mask
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec


@dataclass(frozen=True)
class Site:
    """One place where a host's attention was replaced.

    Args:
        path: the module's path in the model.
        host: class that stood there.
        layer: index among the model's sites.
        operator: label of the attention that stands there now.
    """

    path: str
    host: str
    layer: int
    operator: str


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


def adapt_timm_attention(host: Any, spec: AttentionSpec, layer: int, depth: int) -> MultiHeadAttention:
    """The layer that takes the place of a `timm.layers.Attention`: its weights, norms, gate, scale and dropout are kept.

    Raises:
        DnaError: the host has a part that the layer does not know.
    """
    parts: dict[str, Any] = dict(host.named_children())
    unknown = sorted(parts.keys() - {"qkv", "q_norm", "k_norm", "attn_drop", "norm", "gate", "proj", "proj_drop"})
    if unknown or not isinstance(parts.get("qkv"), nn.Linear):
        raise DnaError(f"{type(host).__name__}: cannot replace an attention layer with {', '.join(unknown) or 'no packed qkv'}")
    layer_ = build_attention(
        spec,
        dim=parts["qkv"].in_features,
        heads=host.num_heads,
        layer=layer,
        depth=depth,
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
    layer_.load_state_dict({**layer_.state_dict(), **host.state_dict()})
    return layer_.train(host.training)


Adapter = Callable[[Any, AttentionSpec, int, int], MultiHeadAttention]
HOSTS: dict[type[nn.Module], Adapter] = {Attention: adapt_timm_attention}


def replace_attention(model: nn.Module, spec: AttentionSpec) -> list[Site]:
    """Replaces every attention layer of a known host class, in place, and keeps its weights.

    Streams that the host lacks start as the host's own do: truncated normal of deviation 0.02, bias 0.

    Args:
        model: a timm ViT or DeiT, or anything that holds `timm.layers.Attention`.
        spec: the attention; layers that it does not choose get softmax, by the same path.

    Returns:
        The sites, in the order of the model's modules.

    Raises:
        UnknownName: no such operator, pattern or option.
        DnaError: the model holds no known host, or one with a part that the layer does not know.
    """
    check_attention(spec)
    found = [(path, module) for path, module in model.named_modules() if type(module) in HOSTS and path]
    if not found:
        seen = sorted({type(module).__name__ for module in model.modules() if not type(module).__module__.startswith("torch.")})
        known = ", ".join(f"{host.__module__}.{host.__name__}" for host in HOSTS)
        raise DnaError(f"no attention layer to replace: {known} is known, the model has {', '.join(seen) or 'torch classes'}")
    sites = []
    for layer, (path, host) in enumerate(found):
        parent, _, child = path.rpartition(".")
        setattr(model.get_submodule(parent), child, HOSTS[type(host)](host, spec, layer, len(found)))
        sites.append(Site(path, type(host).__name__, layer, choose_spec(spec, layer, len(found)).label))
    return sites
