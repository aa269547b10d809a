"""Weights out: the tensors of a softmax model under timm's names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.softmax import Softmax
from dna_suite.backbones.convit import PositionalAttention
from dna_suite.errors import DnaError


def state_dict_for_timm(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model whose attention is dense softmax in every layer, for timm's own model to load strictly.

    q, k and v are joined to the host's packed projection: `qkv`, or `qk` beside v in ConViT's gated layers.

    Args:
        model: a timm model after `replace_attention`.

    Raises:
        DnaError: the model has no attention layer of ours, or one that timm has no layer for.
    """
    state = dict(model.state_dict())
    layers = {path: module for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    if not layers:
        raise DnaError("no attention layer to rename: the model has no MultiHeadAttention")
    for path, layer in layers.items():
        if type(layer.operator) is not Softmax:
            raise DnaError(
                f"{path}: timm has no layer for {type(layer.operator).__name__}; only softmax goes back under its names"
            )
        if layer.pattern is not None:
            raise DnaError(
                f"{path}: timm has no layer for the pattern {type(layer.pattern).__name__.lower()}; only dense softmax"
            )
        _join(state, f"{path}." if path else "", ("q", "k") if isinstance(layer, PositionalAttention) else ("q", "k", "v"))
    return state


def _join(state: dict[str, Tensor], prefix: str, names: tuple[str, ...]) -> None:
    for kind in ("weight", "bias"):
        keys = [f"{prefix}{name}.{kind}" for name in names]
        if keys[0] in state:
            state[f"{prefix}{''.join(names)}.{kind}"] = torch.cat([state.pop(key) for key in keys])
