"""The layouts of the released DnA checkpoints ("rjccv/DnA"): their names and row orders to ours, and back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dna_suite.attention.denoising import DnA, DnAQuery
from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.softmax import Softmax
from dna_suite.backbones.positions import fold_class_row
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec

# Rows of the fused projections, in the order in which the released forward takes them apart. The released loader joins the
# parts of its older layout (`qkv`, `q_neg`, `v_neg`) in another order and so permutes three of them; by name nothing can be.
FUSED = {"qqkvv": ("q", "q_neg", "k", "v", "v_neg"), "qqkv": ("q", "q_neg", "k", "v"), "qkv": ("q", "k", "v")}
SCALERS = "neg_scalers"
SIGNS = ("plus", "minus")


def is_released(tensors: Mapping[str, Tensor]) -> bool:
    """Whether tensors have the names of the released denoising attention."""
    parts = {part for name in tensors for part in name.split(".")[-2:]}
    return bool(parts & {SCALERS, "qqkvv", "qqkv"})


def take_released(tensors: Mapping[str, Tensor], sign: str | None, source: str) -> tuple[dict[str, Tensor], str]:
    """Released tensors under the names of ours; `qkv` stays packed, as timm's.

    The released code adds the negative branch in one class and subtracts it in another, under the same names; ours adds it, so
    that a scaler of a subtracting class changes its sign.

    Args:
        tensors: by the released names: fused `qqkvv` or `qqkv`, or `qkv` beside `q_neg` and `v_neg`; alpha is `neg_scalers`.
        sign: "plus" or "minus", what the weights were trained with; None is what the released class of their layout does: the
            models with values of the negative branch add it (`vit/dna_models.py`), the class with shared values subtracts
            (`vit/dna.py`).
        source: the file, for messages.

    Returns:
        The tensors, and the sign that was applied.

    Raises:
        DnaError: the rows of a fused projection cannot be shared out.

    Source: facts of "rjccv/DnA" vit/dna.py and vit/dna_models.py.
    """
    own_values = any(name.split(".")[-2:][0] in ("qqkvv", "v_neg") for name in tensors)
    sign = sign or ("plus" if own_values else "minus")
    state: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        prefix, _, last = name.rpartition(".")
        layer, _, fused = prefix.rpartition(".")
        if last == SCALERS:
            state[f"{prefix}.operator.alpha"] = -tensor if sign == "minus" else tensor
        elif fused in ("qqkvv", "qqkv"):
            streams = FUSED[fused]
            if len(tensor) % len(streams):
                raise DnaError(f"{source}: {name} has {len(tensor)} rows: no multiple of its {len(streams)} projections")
            parts = tensor.chunk(len(streams))
            state.update({f"{layer}.{stream}.{last}": part for stream, part in zip(streams, parts, strict=True)})
        else:
            state[name] = tensor
    return state, sign


def state_dict_for_released(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a ViT under the names and in the fused layout of the released code.

    The released table of positions has no row for the class token: that of ours is added to the token, the function stays.

    Args:
        model: a ViT from `build_image_model` with `dna`, `dna-q` or `softmax` in every layer.

    Raises:
        DnaError: the released code has no model for it.
    """
    if type(model) is not VisionTransformer:
        raise DnaError(f"{type(model).__name__}: the released code has plain vision transformers only")
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    layers = {path: module for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    kinds = {type(layer.operator) for layer in layers.values()}
    fused = {DnA: "qqkvv", DnAQuery: "qqkv", Softmax: "qkv"}
    kind = next(iter(kinds), None)
    if len(kinds) != 1 or kind not in fused or any(layer.pattern for layer in layers.values()):
        raise DnaError(
            f"attention {_label(model)}: the released code has layers for dna, dna-q and softmax, without a "
            "pattern, the same in every block"
        )
    for path in layers:
        for part in ("weight", "bias"):
            names = [f"{path}.{stream}.{part}" for stream in FUSED[fused[kind]]]
            state[f"{path}.{fused[kind]}.{part}"] = torch.cat([state.pop(name) for name in names])
        if kind is not Softmax:
            alpha = state.pop(f"{path}.operator.alpha")
            state[f"{path}.{SCALERS}"] = -alpha if kind is DnAQuery else alpha
    fold_class_row(state)
    return state


def _label(model: nn.Module) -> str:
    spec = getattr(model, "attention", None)
    return spec.label if isinstance(spec, AttentionSpec) else "of this model"
