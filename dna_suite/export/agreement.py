"""Whether an exported model computes what the model computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dna_suite.errors import DnaError


def probe(model: Any, batch: int, seed: int = 0) -> Tensor:
    """Normalised pictures of noise for a model, [batch, channels, height, width], the same at every call."""
    height, width = model.patch_embed.img_size
    channels = next(module.in_channels for module in model.patch_embed.modules() if isinstance(module, nn.Conv2d))
    return torch.randn(batch, channels, height, width, generator=torch.Generator().manual_seed(seed))


def compare(expected: Tensor, found: Tensor, limit: float, what: str) -> float:
    """The largest difference of two outputs, as a share of the largest expected number where that is above 1.

    Args:
        expected: logits of the model.
        found: logits of the export.
        limit: largest difference that is accepted.
        what: the file, for the message.

    Raises:
        DnaError: they differ by more, or are no finite numbers.
    """
    error = ((found - expected).abs().max() / expected.abs().max().clamp(min=1)).item() if found.shape == expected.shape else None
    if error is None or not error <= limit:
        told = f"shapes {list(found.shape)} and {list(expected.shape)}" if error is None else f"{error:.1e}, over {limit:.0e}"
        raise DnaError(f"{what}: the export computes something else than the model ({told}); nothing was written")
    return error
