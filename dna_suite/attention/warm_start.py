"""Weights of an attention layer with fewer streams, made to fit one with a negative branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from dna_suite.attention.multihead import MultiHeadAttention, split_packed
from dna_suite.errors import DnaError

NEGATIVE = {"q_neg": "q", "v_neg": "v"}


@dataclass(frozen=True)
class Change:
    """One tensor that was not simply copied.

    Args:
        tensor: its name in the model, or in the weights if it was dropped.
        action: what happened: "warm start", "start value", "re-initialised", "resized" or "dropped".
        detail: from what, in words.
    """

    tensor: str
    action: str
    detail: str

    def __str__(self) -> str:
        return f"{self.action}: {self.tensor} ({self.detail})"


def warm_start(model: nn.Module, weights: Mapping[str, Tensor], factor: float = 1e-4) -> tuple[dict[str, Tensor], list[Change]]:
    """Completes weights for a model whose attention has streams that the weights lack.

    The positive branch is the weights' own. In a layer without a negative branch a missing stream is `factor` times the positive
    one: a negative branch with values of its own then starts near zero. In a layer that has a negative branch, the missing stream
    was the positive one: it is copied, and the function stays the same. A missing alpha keeps the model's start value.

    Args:
        model: holds `MultiHeadAttention` layers.
        weights: tensors by the model's names; timm's packed `qkv` is split.
        factor: negative stream over positive stream; 1e-4 is what the adapters of "rjccv/DnA" start from.

    Returns:
        The completed tensors, and one change for each tensor that was added.

    Raises:
        DnaError: the weights' projections have another width than the operator's: no copy of theirs gives the same function.
    """
    state, changes = dict(weights), []
    for path, layer in model.named_modules():
        if not isinstance(layer, MultiHeadAttention):
            continue
        prefix = f"{path}." if path else ""
        split_packed(state, prefix)
        shared = any(f"{prefix}{name}" in state for name in ("q_neg.weight", "v_neg.weight", "operator.alpha"))
        ratio = 1.0 if shared else factor
        for name, tensor in layer.state_dict().items():
            stream, _, kind = name.partition(".")
            target, source = f"{prefix}{name}", f"{prefix}{NEGATIVE.get(stream)}.{kind}"
            if target in state:
                _check_width(layer, target, tensor, state[target])
                continue
            if source in state:
                changes.append(Change(target, "warm start", f"{ratio:g} x {source}"))
                state[target] = ratio * state[source].float()
            elif stream == "operator":
                state[target] = tensor.detach().clone()
                changes.append(Change(target, "start value", "the operator's own"))
    return state, changes


def _check_width(layer: MultiHeadAttention, name: str, wanted: Tensor, found: Tensor) -> None:
    if found.shape != wanted.shape:
        kind = type(layer.operator).__name__
        raise DnaError(
            f"warm start of {kind}: {name} is {list(found.shape)}, {list(wanted.shape)} here: the widths must be equal"
        )
