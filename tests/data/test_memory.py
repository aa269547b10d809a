"""Memory of a long run: thousands of decoded and augmented pictures leave nothing behind."""

import gc
import resource
from pathlib import Path

import pytest

from dna_suite.data.imagenet import ImageNet


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


@pytest.mark.slow
def test_memory_does_not_grow_over_thousands_of_pictures() -> None:
    data = ImageNet("imagenet", toy=True, batch=20, workers=0, size=96, augment="rand-m9-mstd0.5-inc1", repeats=1)
    loader = data.train_dataloader()
    after = []
    for epoch in range(25):
        seen = sum(batch["present"] for batch in loader)
        assert seen == 200
        if epoch in (4, 24):
            gc.collect()
            after.append(resident_megabytes())
    # 4,000 pictures of 28 kB as bytes would be 110 MB; the allocator's own drift stays under a few MB.
    assert after[1] - after[0] < 20
