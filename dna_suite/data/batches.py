"""How samples become batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import default_collate

Collate = Callable[[Any], dict[str, Any]]


def collate(samples: Any) -> dict[str, Any]:
    """Samples as one batch: tensors stacked, numbers as tensors, texts as a list, `present` counted; batches pass unchanged."""
    if isinstance(samples, dict):
        return samples
    skipped = [sample["skipped"] for sample in samples if "skipped" in sample]
    rest = [name for name in samples[0] if name not in ("image", "skipped")]
    batch = {name: default_collate([sample[name] for sample in samples]) for name in rest}
    # Pictures come out of the resize channels-last; a batch that stays so costs a tenth of one that is turned.
    batch["image"] = default_collate([sample["image"].permute(1, 2, 0) for sample in samples]).permute(0, 3, 1, 2)
    batch["present"] = sum(bool(sample["counted"]) for sample in samples)
    return {**batch, "skipped": skipped} if skipped else batch


def leave_out_skipped(samples: Any) -> dict[str, Any]:
    """Samples as one training batch without the unreadable ones; where none is left, one stays and is not counted."""
    if isinstance(samples, dict):
        return samples
    kept = [sample for sample in samples if "skipped" not in sample] or samples[:1]
    skipped = [sample["skipped"] for sample in samples if "skipped" in sample]
    batch = collate(kept)
    return {**batch, "skipped": skipped} if skipped else batch
