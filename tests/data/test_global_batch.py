"""The product of an optimiser step's samples, and how a mismatch is told."""

import pytest

from dna_suite.data.global_batch import GlobalBatch


def test_the_product_is_told_with_its_factors():
    assert str(GlobalBatch(256, 1, 4)) == "1024 = 256 x 1 process x 4 micro-batches"
    assert str(GlobalBatch(128, 8, 1)) == "1024 = 128 x 8 processes x 1 micro-batch"


@pytest.mark.parametrize("wanted", [None, 1024])
def test_a_product_that_fits_is_no_mismatch(wanted):
    assert GlobalBatch(256, 1, 4).mismatch(wanted) is None


@pytest.mark.parametrize(
    ("factors", "ways"),
    [
        # Half the local batch: twice the micro-batches, or the batch of before.
        ((128, 1, 4), "--trainer.accumulate_grad_batches=8 or --data.batch=256 gives it"),
        # Eight devices need no accumulation at the largest batch that fits, or smaller batches with it.
        ((256, 8, 4), "--data.batch=128 --trainer.accumulate_grad_batches=1 or --data.batch=32 gives it"),
        # 512 samples a device are no multiple of 200, nor of 3 micro-batches.
        ((200, 2, 3), "--data.batch=128 --trainer.accumulate_grad_batches=4 gives it"),
        ((512, 1, 1), "--trainer.accumulate_grad_batches=2 or --data.batch=1024 gives it"),
        ((256, 3, 4), "no batch of 3 processes gives it"),
    ],
)
def test_a_mismatch_names_the_ways_to_repair_it(factors, ways):
    batch = GlobalBatch(*factors)
    line = batch.mismatch(1024)
    assert line is not None
    assert line.startswith(f"data.global_batch 1024: this run has {batch}; {ways}")
    assert line.endswith(f"--data.global_batch={batch.samples} takes this one")


@pytest.mark.parametrize("factors", [(128, 1, 4), (256, 8, 4), (200, 2, 3), (7, 4, 5), (3, 1, 3)])
def test_every_way_gives_the_wanted_product(factors):
    given = dict(zip(("--data.batch", "--trainer.accumulate_grad_batches"), (factors[0], factors[2]), strict=True))
    for way in GlobalBatch(*factors).ways_to(1024):
        flags = given | {flag: int(value) for flag, value in (word.split("=") for word in way.split())}
        assert flags["--data.batch"] * factors[1] * flags["--trainer.accumulate_grad_batches"] == 1024
