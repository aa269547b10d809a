"""What sparse patterns keep in an image model, and which engine runs them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn

from dna_suite.attention.engines import describe_engine
from dna_suite.attention.pattern import Pattern


def grouped_engines(model: nn.Module, device: torch.device | str, compiled: bool = False) -> list[str]:
    """One line for all layers that share label, engine and share of kept pairs; layers without a pattern are left out.

    As in "12 x dna+fibottention: offsets on cpu at 785 tokens, keeps 1.15 % of patch pairs, 1.41 % with prefix tokens".

    Args:
        model: an image model from `build_image_model`, on any device.
        device: where it is to run.
        compiled: it is to be compiled.
    """
    net: Any = model
    lines: Counter[str] = Counter()
    for site in getattr(model, "sites", ()):
        layer: Any = model.get_submodule(site.path)
        if layer.pattern is not None:
            tokens = net.patch_embed.num_patches + layer.pattern.prefix
            engine = describe_engine(layer, tokens, device, compiled)
            lines[f"{site.operator}: {engine} on {device} at {tokens} tokens, keeps {_kept_share(layer.pattern, tokens)}"] += 1
    return [f"{count} x {line}" for line, count in lines.items()]


def _kept_share(pattern: Pattern, tokens: int) -> str:
    kept, patches = pattern.count_pairs(tokens), pattern.count_patches(tokens)
    inner = 100 * (kept - pattern.heads * (tokens**2 - patches**2)) / (pattern.heads * patches**2)
    text = f"{inner:.2f} % of patch pairs"
    return f"{text}, {100 * kept / (pattern.heads * tokens**2):.2f} % with prefix tokens" if pattern.prefix else text
