import numpy as np
import pytest

from dna_suite.data.subset import choose_balanced, count_turns, hold_out
from dna_suite.errors import DnaError

LABELS = np.array([0] * 50 + [1] * 20 + [2] * 3)


def test_classes_are_balanced_as_far_as_they_go():
    chosen = choose_balanced(LABELS, 20, seed=0)
    assert sorted(np.bincount(LABELS[chosen]).tolist()) == [3, 8, 9]
    assert np.bincount(LABELS[chosen])[2] == 3
    assert np.all(np.diff(chosen) > 0)


def test_seed_decides_which_samples():
    first, again, other = (choose_balanced(LABELS, 12, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_more_than_there_is_gives_all():
    assert choose_balanced(LABELS, 1000, seed=0).tolist() == list(range(73))


def test_one_sample_of_one_class():
    assert len(choose_balanced(LABELS, 1, seed=3)) == 1


def test_turns():
    turns, sizes = count_turns(np.array([0, 0, 3, 3, 3]))
    assert turns.tolist() == [0, 1, 0, 1, 2]
    assert sizes.tolist() == [2, 2, 3, 3, 3]


def test_holdout_is_balanced_and_the_rest_is_the_rest():
    labels = np.repeat(np.arange(10), 30)
    rest, chosen = hold_out(labels, 0.1, 5)
    assert np.bincount(labels[chosen]).tolist() == [3] * 10
    assert sorted(np.concatenate([rest, chosen]).tolist()) == list(range(300))
    assert np.array_equal(hold_out(labels, 30, 5)[1], chosen)
    assert not np.array_equal(hold_out(labels, 30, 6)[1], chosen)
    assert len(hold_out(labels, 0.0001, 0)[1]) == 1


def test_holdout_that_leaves_a_class_without_samples():
    with pytest.raises(DnaError, match=r"data.holdout 8 of 12 training samples leaves none of 2 of 3 classes"):
        hold_out(np.array([0, 1] + [2] * 10), 8, 0)
