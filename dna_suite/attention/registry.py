"""Operators by name, and the attention layer that a spec describes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from dna_suite.attention.implementation import load_implementation
from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.operator import Operator
from dna_suite.attention.options import check_attention, operator_options
from dna_suite.attention.patterns import build_pattern
from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec, chosen_layers

OperatorClass = TypeVar("OperatorClass", bound=type[Operator])

_FAMILIES = ("softmax", "denoising", "differential", "cog")
_classes: dict[str, type[Operator]] = {}


def register(name: str) -> Callable[[OperatorClass], OperatorClass]:
    """Decorator that attaches an operator class to its entry in the catalogue.

    Raises:
        UnknownName: the catalogue has no such operator.
        DnaError: the name has another class already, or the class has other streams than the catalogue says.
    """

    def attach(operator: OperatorClass) -> OperatorClass:
        if name not in OPERATORS:
            raise UnknownName("attention", name, OPERATORS)
        if operator.streams != OPERATORS[name].streams:
            raise DnaError(f"attention {name!r}: class has streams {operator.streams}, the catalogue {OPERATORS[name].streams}")
        if name in _classes:
            raise DnaError(f"attention {name!r} is registered already, as {_classes[name].__name__}")
        _classes[name] = operator
        return operator

    return attach


def operator_class(name: str) -> type[Operator]:
    """The class of an operator.

    Raises:
        UnknownName: no operator has this name.
        DnaError: the class of another package's operator cannot be used.
    """
    for family in _FAMILIES:
        importlib.import_module(f"dna_suite.attention.{family}")
    if name not in _classes and name in OPERATORS and OPERATORS[name].implementation:
        register(name)(load_implementation(name, OPERATORS[name].implementation))
    if name not in _classes:
        raise UnknownName("attention", name, _classes)
    return _classes[name]


def list_operators() -> tuple[str, ...]:
    """Names of all operators, in the catalogue's order."""
    return tuple(OPERATORS)


def list_patterns() -> tuple[str, ...]:
    """Names of all sparse patterns, in the catalogue's order."""
    return tuple(PATTERNS)


def choose_spec(spec: AttentionSpec, layer: int, depth: int) -> AttentionSpec:
    """The attention of one layer: the spec in the layers that it chooses, softmax in the others."""
    return spec if layer in chosen_layers(spec.layers, depth) else AttentionSpec()


def build_attention(
    spec: AttentionSpec,
    *,
    dim: int,
    heads: int,
    layer: int | None = None,
    depth: int = 1,
    prefix: int = 0,
    head_dim: int | None = None,
    dim_out: int | None = None,
    kv_dim: int | None = None,
    qkv_bias: bool = True,
    proj_bias: bool = True,
    scale: float | None = None,
    attn_drop: float = 0.0,
    proj_drop: float = 0.0,
    q_norm: nn.Module | None = None,
    k_norm: nn.Module | None = None,
    norm: nn.Module | None = None,
    gated: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    layer_class: Callable[..., MultiHeadAttention] = MultiHeadAttention,
) -> MultiHeadAttention:
    """The attention layer that a spec describes.

    Args:
        spec: operator, pattern, options, and the layers that have them.
        dim: width of the tokens.
        heads: attention heads.
        layer: index of this layer in a model of `depth` layers; None for a single layer whose operator asks for no index.
        depth: layers of the model that have attention.
        prefix: tokens before those of the picture, such as a class token; a pattern leaves them dense.
        head_dim: channels of one head, before the operator's own ratio; `dim / heads` if None.
        dim_out: width of the result; `dim` if None.
        kv_dim: width of the context that keys and values come from; `dim` if None.
        qkv_bias: give every stream's projection a bias.
        proj_bias: give the output projection a bias.
        scale: factor of q k' for a width of `head_dim`; `head_dim ** -0.5` if None.
        attn_drop: dropout of the maps in training.
        proj_drop: dropout of the result in training.
        q_norm: norm of every query stream, on [batch, heads, tokens, head_dim].
        k_norm: norm of the keys, likewise.
        norm: norm of the merged heads before the output projection.
        gated: multiply the merged heads by a sigmoid gate of the tokens.
        device: where the parameters are made.
        dtype: type of the parameters; alpha is float32.
        layer_class: class of the layer, or a function with its arguments.

    Raises:
        UnknownName: no such operator, pattern or option.
        DnaError: `heads` does not divide `dim`, an option has the wrong type, `spec.layers` names no layer, the operator or the
            pattern asks for a layer index and has none, or a norm has another width than the operator's heads.
    """
    check_attention(spec)
    if head_dim is None:
        check_heads(dim, heads)
        head_dim = dim // heads
    chosen = choose_spec(spec, layer or 0, depth)
    kind = operator_class(chosen.name)
    if layer is None and kind.needs_layer:
        raise DnaError(f"attention {chosen.name!r} depends on its place in the model: build_attention needs layer=")
    operator = kind(heads, head_dim, layer or 0, **operator_options(chosen))
    built = layer_class(
        operator.to(device=device),
        dim=dim,
        heads=heads,
        head_dim=head_dim,
        dim_out=dim_out,
        kv_dim=kv_dim,
        qkv_bias=qkv_bias,
        proj_bias=proj_bias,
        scale=scale,
        attn_drop=attn_drop,
        proj_drop=proj_drop,
        q_norm=q_norm,
        k_norm=k_norm,
        norm=norm,
        gated=gated,
        device=device,
        dtype=dtype,
    )
    built.pattern = build_pattern(chosen, heads=heads, layer=layer, prefix=prefix)
    return built


def check_heads(dim: int, heads: int, dim_key: str = "dim", heads_key: str = "heads") -> None:
    """Refuses a width that the heads cannot share.

    Args:
        dim: width of the tokens.
        heads: attention heads.
        dim_key: what the message calls the width.
        heads_key: what the message calls the heads.

    Raises:
        DnaError: `heads` is below 1 or does not divide `dim`; both are named, with the nearest counts that fit.
    """
    if heads >= 1 and dim >= 1 and dim % heads == 0:
        return
    fitting = sorted((count for count in range(1, dim + 1) if dim % count == 0), key=lambda count: abs(count - heads))[:2]
    hint = f": {', '.join(str(count) for count in sorted(fitting))} would" if fitting else ""
    raise DnaError(f"{heads_key} {heads} does not divide {dim_key} {dim}{hint}")
