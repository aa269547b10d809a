import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from dna_suite.data.order import IDLE, Counted, EpochBatches, EvalBatches, Seeded, draw_uniform, mix_bits


def batches_of(epoch: int, **arguments) -> list[list[tuple[int, int, int]]]:
    batches = EpochBatches(**arguments)
    batches.done = lambda: epoch * batches.steps_per_epoch
    return list(batches)


def indices(batches) -> list[int]:
    return [key[1] for batch in batches for key in batch]


def test_an_epoch_is_a_permutation_that_depends_on_seed_and_epoch_only():
    first, again, second = (indices(batches_of(epoch, length=50, batch=8, seed=3)) for epoch in (0, 0, 1))
    assert first == again == np.random.default_rng([3, 0]).permutation(50).tolist()
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert indices(batches_of(0, length=50, batch=8, seed=4)) != first


def test_keys_name_their_epoch():
    assert {key[0] for batch in batches_of(2, length=10, batch=4) for key in batch} == {2}


def test_iterating_twice_gives_the_same_batches():
    batches = EpochBatches(38, 4, accumulate=3, done=lambda: 6)
    assert list(batches) == list(batches)


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_every_optimiser_step_is_a_start(accumulate):
    arguments = {"length": 38, "batch": 4, "seed": 1, "accumulate": accumulate}
    whole = [batch for epoch in range(3) for batch in batches_of(epoch, **arguments)]
    steps = EpochBatches(**arguments).steps_per_epoch
    for done in range(3 * steps):
        epoch, step = divmod(done, steps)
        start = epoch * 10 + step * accumulate
        assert list(EpochBatches(**arguments, done=lambda done=done: done)) == whole[start : 10 * (epoch + 1)]


def test_a_limit_shortens_the_epoch_but_not_its_stated_length():
    batches = EpochBatches(100, 10, accumulate=2, limit=3)
    assert (len(batches), batches.batches, batches.steps_per_epoch, len(list(batches))) == (10, 3, 2, 3)
    # The second window holds one micro-batch: Lightning divides its loss by 2 all the same.
    assert [batches.weight(b) for b in range(3)] == [1.0, 1.0, 2.0]
    batches.done = lambda: 2
    assert next(iter(batches))[0][0] == 1


@pytest.mark.parametrize("repeats", [1, 3])
def test_processes_part_the_same_global_batches(repeats):
    arguments = {"length": 50, "seed": 5, "repeats": repeats}
    alone = batches_of(1, batch=12, **arguments)
    for world in (2, 3):
        ranks = [batches_of(1, batch=12 // world, world=world, rank=rank, **arguments) for rank in range(world)]
        for together, *shares in zip(alone, *ranks, strict=True):
            real = [key for share in shares for key in share if key[2] != IDLE]
            assert sorted(real) == sorted(together)


def test_a_process_takes_every_world_th_sample():
    alone = batches_of(0, length=24, batch=12)
    assert batches_of(0, length=24, batch=4, world=3, rank=1) == [batch[1::3] for batch in alone]


def test_copies_stay_together_and_the_epoch_keeps_its_length():
    keys = [key for batch in batches_of(0, length=10, batch=4, repeats=3) for key in batch]
    assert len(keys) == 10
    assert [repeat for _, _, repeat in keys] == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert [keys[i][1] for i in (0, 3, 6)] == [keys[i + 2][1] for i in (0, 3, 6)]
    assert len({index for _, index, _ in keys}) == 4


def test_weights_of_a_short_last_window():
    # 50 samples in global batches of 12: 12 12 | 12 12 | 2, two micro-batches to a step.
    alone = EpochBatches(50, 12, accumulate=2)
    assert [alone.weight(b) for b in range(5)] == [1, 1, 1, 1, 2]
    ranks = [EpochBatches(50, 4, accumulate=2, world=3, rank=rank) for rank in range(3)]
    assert [rank.weight(0) for rank in ranks] == [1, 1, 1]
    assert [rank.weight(4) for rank in ranks] == [3, 3, 0]
    assert [[key[2] for key in list(rank)[-1]] for rank in ranks] == [[0], [0], [IDLE]]


@pytest.mark.parametrize(("length", "accumulate"), [(50, 2), (64, 4), (7, 3)])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_weighted_means_are_the_mean_over_the_window(length, accumulate, world):
    loss = np.random.default_rng(0).random(length)
    ranks = [EpochBatches(length, 12 // world, accumulate=accumulate, world=world, rank=rank) for rank in range(world)]
    shares = [[np.array([key[1] for key in batch]) for batch in rank] for rank in ranks]
    for first in range(0, len(shares[0]), accumulate):
        window = range(first, min(first + accumulate, len(shares[0])))
        # DDP takes the mean over processes, Lightning divides by accumulate.
        ours = sum(ranks[r].weight(b) * loss[shares[r][b]].mean() / accumulate for r in range(world) for b in window) / world
        real = np.concatenate([shares[r][b] for r in range(world) for b in window if ranks[r].weight(b) > 0])
        assert ours == pytest.approx(loss[real].mean(), rel=1e-14)  # float64 sums of at most 64 terms


def test_a_sample_that_was_left_out_has_weight_0_and_the_others_keep_theirs():
    batches = EpochBatches(16, 4, accumulate=2)
    # Mean over 3 present samples times 3/4 is their sum over 4: the window still divides by 8.
    assert batches.weight(1, present=3) == 0.75
    assert batches.weight(1, present=0) == 0.0


@pytest.mark.parametrize("length", [3, 5, 11])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_evaluation_counts_each_sample_once_in_the_same_batches(length, world):
    alone = list(EvalBatches(length, 2))
    ranks = [list(EvalBatches(length, 2, world=world, rank=rank)) for rank in range(world)]
    assert {len(rank) for rank in ranks} == {-(-len(alone) // world)}
    dealt = [batch for turn in zip(*ranks, strict=True) for batch in turn]
    assert dealt[: len(alone)] == alone
    assert dealt[len(alone) :] == [[(0, False)]] * (len(dealt) - len(alone))
    assert sorted(index for batch in dealt for index, counted in batch if counted) == list(range(length))


class Drawn(Dataset):
    def __getitem__(self, index: int) -> dict:
        return {"draws": (random.random(), float(np.random.rand()), float(torch.rand(())))}


def draws(workers: int, epoch: int, seed: int = 0) -> list[tuple]:
    batches = EpochBatches(12, 3, seed=seed)
    batches.done = lambda: epoch * batches.steps_per_epoch
    loader = DataLoader(Seeded(Drawn(), seed), batch_sampler=batches, num_workers=workers, collate_fn=list)
    return [(sample["index"], *sample["draws"]) for batch in loader for sample in batch]


def test_draws_are_a_function_of_seed_epoch_and_sample():
    # TRN-20: neither workers nor epochs share draws, and the number of workers does not matter.
    first, second = draws(0, epoch=0), draws(0, epoch=1)
    assert draws(2, epoch=0) == first
    assert draws(0, epoch=0) == first
    numbers = [number for sample in first + second for number in sample[1:]]
    assert len(set(numbers)) == len(numbers) == 72
    assert draws(0, epoch=0, seed=1) != first


def test_a_copy_draws_anew():
    seeded = Seeded(Drawn(), 0)
    assert seeded[0, 5, 0]["draws"] != seeded[0, 5, 1]["draws"]


def test_an_idle_sample_is_not_counted():
    assert Seeded(Drawn(), 0)[0, 5, IDLE]["counted"] is False
    assert Counted(Drawn())[5, False]["counted"] is False
    assert Counted(Drawn())[5, True]["counted"] is True


def test_mixer_is_splitmix64():
    # First output of SplitMix64 for the state 0.
    assert int(mix_bits(np.zeros(1, dtype=np.uint64))[0]) == 0xE220A8397B1DCDAF


def test_uniform_numbers_belong_to_their_key():
    keys = [(epoch, index, repeat) for epoch in range(3) for index in range(100) for repeat in range(2)]
    numbers = draw_uniform(7, keys, 4)
    assert np.array_equal(draw_uniform(7, keys[5:6], 4), numbers[5:6])
    assert len(np.unique(numbers)) == numbers.size == 2400
    assert 0 <= numbers.min() < 0.01
    assert 0.99 < numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.02  # standard error of 2400 uniform numbers: 0.006
    assert not np.array_equal(draw_uniform(8, keys, 4), numbers)


def test_imagenet_on_four_processes():
    batches = EpochBatches(1_281_167, 256, world=4, rank=3, seed=0)
    assert len(batches) == 1252
    assert len(next(iter(batches))) == 256
