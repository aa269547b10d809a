"""How samples become batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate, get_worker_info

Collate = Callable[[Any], dict[str, Any]]
Sample = Mapping[str, Any]


class Lazily:
    """The samples of some keys, each made when its turn comes: a picture then goes into its batch while it is in the cache.

    Args:
        make: key to sample.
        keys: of the samples.
    """

    def __init__(self, make: Callable[[Any], Sample], keys: Sequence[Any]) -> None:
        self.make, self.keys = make, keys

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Sample]:
        return map(self.make, self.keys)


def collate(samples: Any) -> dict[str, Any]:
    """Samples as one batch: tensors stacked, numbers as tensors, texts as a list, `present` counted; batches pass unchanged."""
    return samples if isinstance(samples, dict) else gather(samples, leave_out=False)


def leave_out_skipped(samples: Any) -> dict[str, Any]:
    """Samples as one training batch without the unreadable ones; where none is left, one stays and is not counted."""
    return samples if isinstance(samples, dict) else gather(samples, leave_out=True)


def gather(samples: Any, leave_out: bool) -> dict[str, Any]:
    """Samples as one batch.

    Args:
        samples: sized, iterated once; each has `image` uint8 [3, height, width] and `counted`, and `skipped` if it is unreadable.
        leave_out: whether unreadable samples are left out.
    """
    kept: list[dict[str, Any]] = []
    skipped: list[str] = []
    images = None
    for sample in samples:
        rest = dict(sample)
        # Pictures come out of the resize channels-last; a batch that stays so costs a tenth of one that is turned.
        image = rest.pop("image").permute(1, 2, 0)
        if "skipped" in rest:
            skipped.append(rest.pop("skipped"))
            if leave_out and (kept or len(skipped) < len(samples)):
                continue
        images = allocate((len(samples), *image.shape), image.dtype) if images is None else images
        assert image.shape == images.shape[1:]
        images[len(kept)] = image
        kept.append(rest)
    assert images is not None
    batch = {name: default_collate([rest[name] for rest in kept]) for name in kept[0]}
    batch["image"] = images[: len(kept)].permute(0, 3, 1, 2)
    batch["present"] = sum(bool(rest["counted"]) for rest in kept)
    return {**batch, "skipped": skipped} if skipped else batch


def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An empty tensor; in a loader's worker in shared memory, where it would be copied to otherwise."""
    if get_worker_info() is None:
        return torch.empty(shape, dtype=dtype)
    storage = torch.UntypedStorage._new_shared(torch.Size(shape).numel() * dtype.itemsize)
    return torch.empty(0, dtype=dtype).set_(storage).view(shape)
