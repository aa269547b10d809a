"""What a run is made of, as plain values: attention, optimiser, schedule."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dna_suite.errors import DnaError


@dataclass(frozen=True)
class AttentionSpec:
    """Which attention stands in which layers.

    Args:
        name: operator, a key of `catalogue.OPERATORS`.
        pattern: sparse support, a key of `catalogue.PATTERNS`; None is dense.
        layers: "all", a slice such as "1:-1", or a list such as "0,3,5"; other layers keep softmax.
        options: options of the operator and of the pattern, by name.
    """

    name: str = "softmax"
    pattern: str | None = None
    layers: str = "all"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name in tables and folders: operator, then "+pattern" where there is one."""
        return self.name if self.pattern is None else f"{self.name}+{self.pattern}"

    def plain(self) -> dict[str, Any]:
        """The spec as a dictionary of plain values."""
        return asdict(self)


def chosen_layers(layers: str, depth: int) -> tuple[int, ...]:
    """The layer indices that a `layers` text names in a model of `depth` layers.

    Raises:
        DnaError: the text is no slice or list of integers, or names a layer that does not exist.
    """
    text = layers.strip()
    if text == "all":
        return tuple(range(depth))
    try:
        if ":" in text:
            start, stop, *step = (int(part) if part.strip() else None for part in text.split(":"))
            chosen = list(range(depth)[slice(start, stop, *step)])
        else:
            chosen = sorted({range(depth)[int(part)] for part in text.split(",")})
    except IndexError:
        raise DnaError(f"attention.layers {layers!r}: the model has layers 0 to {depth - 1}") from None
    except (ValueError, TypeError):
        raise DnaError(f'attention.layers {layers!r}: "all", a slice such as "1:-1" or a list such as "0,3,5"') from None
    if not chosen:
        raise DnaError(f"attention.layers {layers!r} names none of the {depth} layers")
    return tuple(chosen)


@dataclass(frozen=True)
class OptimSpec:
    """How weights are updated.

    Args:
        name: adamw, or sgd with Nesterov momentum.
        lr: learning rate at a global batch of `lr_batch`.
        lr_batch: the global batch that `lr` belongs to.
        lr_scaling: how `lr` follows the real global batch: not at all, in proportion, or by its square root.
        weight_decay: decoupled weight decay.
        decay: what it pulls: matrices alone, so that biases, norms, tokens, position tables and scalars have none, or all.
        layer_decay: factor of the rate from a layer to the one before it, the head having 1; 1 is off.
        beta1: first moment of adamw; momentum of sgd.
        beta2: second moment of adamw.
        eps: denominator term of adamw.
    """

    name: Literal["adamw", "sgd"] = "adamw"
    lr: float = 1e-3
    lr_batch: int = 1024
    lr_scaling: Literal["none", "linear", "sqrt"] = "none"
    weight_decay: float = 0.05
    decay: Literal["matrices", "all"] = "matrices"
    layer_decay: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True)
class ScheduleSpec:
    """How the learning rate moves over the optimiser steps.

    Args:
        name: cosine after the warm-up, or constant after it.
        warmup_epochs: length of the linear warm-up; fractions are allowed.
        warmup_lr: rate at the first step (not scaled with the batch).
        min_lr: rate that the cosine ends at (not scaled with the batch).
        every: the rate moves with each optimiser step, or stays for an epoch.
        cosine_from: where the cosine begins: behind the warm-up, or at the start of the run, so that the warm-up hides its top.
        lag: epochs by which the curve comes late; until then the rate is that of the first step.
    """

    name: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: float = 0.0
    warmup_lr: float = 1e-6
    min_lr: float = 0.0
    every: Literal["step", "epoch"] = "step"
    cosine_from: Literal["warmup", "start"] = "warmup"
    lag: int = 0
