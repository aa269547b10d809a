"""Replaces the attention layers of models from other libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from timm.layers.attention import Attention
from timm.layers.patch_dropout import PatchDropout
from timm.models.convit import GPSA, MHSA
from timm.models.swin_transformer import WindowAttention
from torch import nn

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.options import check_attention
from dna_suite.backbones.convit import adapt_gpsa, adapt_mhsa
from dna_suite.backbones.place import Place
from dna_suite.backbones.swin import adapt_window
from dna_suite.backbones.timm_vit import adapt_attention
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


Adapter = Callable[[Any, Place], MultiHeadAttention]
HOSTS: dict[type[nn.Module], Adapter] = {
    Attention: adapt_attention,
    WindowAttention: adapt_window,
    GPSA: adapt_gpsa,
    MHSA: adapt_mhsa,
}


def replace_attention(model: nn.Module, spec: AttentionSpec) -> list[Site]:
    """Replaces every attention layer of a known host class, in place, and keeps its weights; on an error the model is untouched.

    Streams that the host lacks, and those that the operator makes wider than the host's, start as the host's own do: truncated
    normal of deviation 0.02, bias 0.

    Args:
        model: a timm ViT, DeiT, Swin or ConViT, or anything that holds their attention classes.
        spec: the attention; layers that it does not choose get softmax, by the same path.

    Returns:
        The sites, in the order of the model's modules.

    Raises:
        UnknownName: no such operator, pattern or option.
        DnaError: the model holds no known host, one with a part that the layer does not know, or one where the operator or the
            pattern cannot stand.
    """
    check_attention(spec)
    if spec.pattern is not None and any(isinstance(module, PatchDropout) for module in model.modules()):
        raise DnaError(
            f"attention pattern {spec.pattern!r} goes by the place of patches in the picture: patch_drop_rate must be 0"
        )
    found = [(path, module) for path, module in model.named_modules() if type(module) in HOSTS and path]
    if not found:
        seen = sorted({type(module).__name__ for module in model.modules() if not type(module).__module__.startswith("torch.")})
        known = ", ".join(host.__name__ for host in HOSTS)
        has = ", ".join(seen) or "torch classes"
        raise DnaError(f"no attention layer to replace: timm's {known} are known, the model has {has}")
    # A features_only model has its host one level down.
    prefix = next(
        (getattr(module, "num_prefix_tokens", 0) for module in model.modules() if hasattr(module, "num_prefix_tokens")), 0
    )
    places = [Place(spec, layer, len(found), prefix) for layer in range(len(found))]
    built = [HOSTS[type(host)](host, place) for (_, host), place in zip(found, places, strict=True)]
    sites = []
    for (path, host), layer, place in zip(found, built, places, strict=True):
        parent, _, child = path.rpartition(".")
        setattr(model.get_submodule(parent), child, layer)
        sites.append(Site(path, type(host).__name__, place.layer, place.chosen.label))
    return sites
