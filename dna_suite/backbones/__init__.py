"""Models that the attention layers stand in: timm hosts, our own builders, costs and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dna_suite.backbones.weights import load_model

__all__ = ["load_model"]


def __getattr__(name: str) -> Any:
    if name == "load_model":
        from dna_suite.backbones.weights import load_model

        return load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
