"""The attention layer: one projection for each named stream, heads split, an operator, heads merged, output projection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dna_suite.attention.engines import restrict_scores
from dna_suite.attention.operator import Operator, Streams
from dna_suite.attention.pattern import Pattern
from dna_suite.attention.scores import Bias, Scores
from dna_suite.errors import DnaError

QUERIES = ("q", "q_neg")
VALUES = ("v", "v_neg")
PACKED = (("q", "k", "v"), ("q", "k"))
# What timm's DiffAttention holds beside its projections.
DIFFERENTIAL = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2", "sub_norm.weight")


class MultiHeadAttention(nn.Module):
    """Multi-head attention around any operator, over the tokens themselves or over a context.

    Parameters are `q`, `q_neg`, `k`, `v`, `v_neg` (those that the operator has) and `proj`, one Linear each, and the operator's
    own below `operator.`. A state dict with timm's packed `qkv` loads as it is: its thirds become q, k and v.

    Args:
        operator: mixes the values.
        dim: width of the tokens.
        heads: attention heads.
        head_dim: channels of one head, before the operator's own ratio.
        dim_out: width of the result; `dim` if None.
        kv_dim: width of the context; `dim` if None.
        qkv_bias: give every stream's projection a bias.
        proj_bias: give the output projection a bias.
        scale: factor of q k' for a width of `head_dim`; `head_dim ** -0.5` if None. It follows an operator's own width.
        attn_drop: dropout of the maps in training.
        proj_drop: dropout of the result in training.
        q_norm: norm of every query stream, on split heads.
        k_norm: norm of the keys, on split heads.
        norm: norm of the merged heads before the output projection.
        gated: multiply the merged heads by a sigmoid gate of the tokens.
        device: where the projections are made.
        dtype: type of the projections.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        dim: int,
        heads: int,
        head_dim: int,
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
    ) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.key_dim, self.value_dim = operator.widths(head_dim)
        self.scale = operator.logit_scale(head_dim**-0.5 if scale is None else scale)
        self.attn_drop = attn_drop
        self.fused = True
        self.pattern: Pattern | None = None
        self.recorder: Callable[[MultiHeadAttention, Streams, Scores], None] | None = None
        inner = heads * self.value_dim
        for name in operator.streams:
            width = dim if name in QUERIES else (kv_dim or dim)
            channels = self.value_dim if name in VALUES else self.key_dim
            self.add_module(name, nn.Linear(width, heads * channels, bias=qkv_bias, device=device, dtype=dtype))
        for name, part, channels in (("q_norm", q_norm, self.key_dim), ("k_norm", k_norm, self.key_dim), ("norm", norm, inner)):
            _check_norm(operator, name, part, channels)
        self.q_norm = nn.Identity() if q_norm is None else q_norm
        self.k_norm = nn.Identity() if k_norm is None else k_norm
        self.operator = operator
        self.norm = nn.Identity() if norm is None else norm
        self.gate = nn.Linear(dim, inner, bias=qkv_bias, device=device, dtype=dtype) if gated else None
        self.proj = nn.Linear(inner, dim_out or dim, bias=proj_bias, device=device, dtype=dtype)
        self.proj_drop = nn.Dropout(proj_drop)
        self.register_load_state_dict_pre_hook(_split_on_load)
        self.reset_parameters()

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the projections, in order."""
        return self.operator.streams

    def reset_parameters(self) -> None:
        """Truncated normal weights of deviation 0.02 and zero biases, as timm's transformers start."""
        for child in self.children():
            if isinstance(child, nn.Linear):
                nn.init.trunc_normal_(child.weight, std=0.02)
                if child.bias is not None:
                    nn.init.zeros_(child.bias)

    def forward(self, x: Tensor, context: Tensor | None = None, bias: Bias | None = None, mask: Tensor | None = None) -> Tensor:
        """Attends from `x` to `context`, or to itself.

        Args:
            x: tokens that the queries come from, [batch, queries, dim].
            context: tokens that keys and values come from, [batch, keys, kv_dim]; `x` if None.
            bias: added to the logits, or a function of a query stream; see `Scores`.
            mask: boolean, True = may attend; see `Scores`.

        Returns:
            [batch, queries, dim_out].
        """
        if context is not None and self.pattern is not None:
            raise DnaError("a sparse pattern is for tokens that attend to themselves: attention to a context needs pattern null")
        s = self.project(x, context)
        scores = self.make_scores(s, bias, mask)
        if self.recorder is not None:
            self.recorder(self, s, scores)
        out = self.norm(self.mix(s, scores).transpose(1, 2).flatten(2))
        if self.gate is not None:
            out = out * self.gate(x).sigmoid()
        return self.proj_drop(self.proj(out))

    def project(self, x: Tensor, context: Tensor | None = None) -> Streams:
        """Every stream of the tokens, [batch, heads, tokens, head_dim] each, normed where the layer has norms."""
        source = x if context is None else context
        s: Streams = {}
        for name in self.streams:
            is_query = name in QUERIES
            split = self.get_submodule(name)(x if is_query else source).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            s[name] = self.q_norm(split) if is_query else self.k_norm(split) if name == "k" else split
        return s

    def make_scores(self, s: Streams, bias: Bias | None, mask: Tensor | None) -> Scores:
        """How this call's queries meet its keys."""
        scores = Scores(self.scale, bias, mask, self.attn_drop if self.training else 0.0, self.fused)
        return scores if self.pattern is None else restrict_scores(scores, self.pattern, self.operator, s["q"])

    def mix(self, s: Streams, scores: Scores) -> Tensor:
        """The values as the operator mixes them, [batch, heads, queries, value_dim]."""
        return self.operator(s, self.operator.choose_path(s, scores))

    def extra_repr(self) -> str:
        """Heads and head width, for the module's printed form."""
        return f"heads={self.heads}, head_dim={self.head_dim}"


def split_packed(state: MutableMapping[str, Tensor], prefix: str = "") -> None:
    """Gives a host's tensors the names of ours, in place.

    Packed projections become their parts, `qkv` becomes `q`, `k` and `v`, `qk` becomes `q` and `k`. The vectors and the norm of
    timm's DiffAttention move below `operator.`.

    Args:
        state: tensors by name; a packed one is [parts * inner, dim].
        prefix: what stands before `qkv`, with its dot.
    """
    for names in PACKED:
        for kind in ("weight", "bias"):
            key = f"{prefix}{''.join(names)}.{kind}"
            packed = state.get(key)
            if packed is not None and packed.shape[0] % len(names) == 0:
                del state[key]
                state.update({f"{prefix}{name}.{kind}": part for name, part in zip(names, packed.chunk(len(names)), strict=True)})
    for name in DIFFERENTIAL:
        if f"{prefix}{name}" in state:
            state[f"{prefix}operator.{name}"] = state.pop(f"{prefix}{name}")


def _check_norm(operator: Operator, name: str, norm: nn.Module | None, channels: int) -> None:
    """Refuses a host's norm of another width than the operator's: it cannot be widened and stay the host's."""
    width = next((parameter.shape[-1] for parameter in norm.parameters()), channels) if norm is not None else channels
    if width != channels:
        kind = type(operator).__name__
        raise DnaError(f"attention {kind} has {channels} channels where {name} of the host has {width}: it cannot stand there")


def _split_on_load(module: nn.Module, state: MutableMapping[str, Tensor], prefix: str, *_: Any) -> None:
    split_packed(state, prefix)


@contextmanager
def written_out(model: nn.Module) -> Iterator[None]:
    """Lets every attention layer of a model run its written-out path inside the block: for counting, export and checks."""
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    before = [layer.fused for layer in layers]
    for layer in layers:
        layer.fused = False
    try:
        yield
    finally:
        for layer, fused in zip(layers, before, strict=True):
            layer.fused = fused
