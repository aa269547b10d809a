"""Which samples serve as train, val and test."""

import numpy as np
import pytest

from dna_suite.data.digits import Digits
from dna_suite.data.fashion_mnist import FashionMNIST
from dna_suite.data.imagenet import ImageNet
from dna_suite.data.toy import write_toy
from dna_suite.errors import DnaError


def fashion(seed: int = 0, **arguments) -> FashionMNIST:
    data = FashionMNIST("fashion_mnist", toy=True, **arguments)
    data.seed = seed
    return data


def rows(data, split: str) -> set[int]:
    return set(data.samples(split).rows.tolist())


def test_train_and_val_share_no_sample_and_test_is_untouched():
    data = fashion(holdout=30)
    assert rows(data, "train") | rows(data, "val") == set(range(200))
    assert not rows(data, "train") & rows(data, "val")
    assert np.bincount(data.samples("val").labels).tolist() == [3] * 10
    assert data.counts() == {"train": 170, "val": 30, "test": 50}
    assert (data.source("val"), data.source("test")) == ("train (holdout 30, seed 0)", "test")
    assert data.position()["length"] == 170


def test_the_seed_decides_unless_holdout_seed_does():
    assert rows(fashion(seed=0), "val") == rows(fashion(seed=0), "val")
    assert rows(fashion(seed=0), "val") != rows(fashion(seed=1), "val")
    first, second = fashion(seed=0, holdout_seed=7), fashion(seed=1, holdout_seed=7)
    assert rows(first, "val") == rows(second, "val")
    assert first.source("val") == "train (holdout 20, seed 7)"


def test_subset_is_of_what_the_holdout_leaves():
    data, whole = fashion(subset=50), fashion()
    assert data.counts() == {"train": 50, "val": 20, "test": 50}
    assert rows(data, "val") == rows(whole, "val")
    assert rows(data, "train") < rows(whole, "train")


def test_a_set_with_a_val_of_its_own_holds_nothing_out_unless_asked(tmp_path):
    root = str(write_toy("imagenet", tmp_path / "x"))
    own, held = (ImageNet(root=root, size=32, holdout=holdout) for holdout in ("auto", 0.1))
    assert (own.counts(), own.source("val")) == ({"train": 200, "val": 50, "test": 50}, "val")
    assert held.counts() == {"train": 180, "val": 20, "test": 50}
    assert (held.source("val"), held.source("test")) == ("train (holdout 20, seed 0)", "val")
    train, val = held.samples("train"), held.samples("val")
    assert not {train.path(i) for i in range(180)} & {val.path(i) for i in range(20)}
    assert type(val.transform).__name__ == "CentreCrop"
    assert Digits(holdout=57).counts() == {"train": 1200, "val": 57, "test": 360}


def test_without_holdout_nothing_is_validated_where_the_set_has_no_val():
    data = fashion(holdout=None)
    assert data.counts() == {"train": 200, "test": 50}
    assert data.splits == ("train", "test")
    assert data.notes == ["nothing is held out of train: nothing is validated, and the last checkpoint is the run's"]
    with pytest.raises(DnaError, match=r"fashion_mnist has no val part of its own: data\.holdout takes one from train"):
        data.val_dataloader()


@pytest.mark.parametrize("holdout", [0, -1, 0.0, 1.0, 1.5, -0.2])
def test_holdouts_that_make_no_sense(holdout):
    with pytest.raises(DnaError, match=rf"data\.holdout {holdout}: samples from 1"):
        fashion(holdout=holdout)


@pytest.mark.parametrize("holdout", [200, 300, 199])
def test_holdouts_that_are_too_large(holdout):
    with pytest.raises(DnaError, match=rf"data\.holdout {holdout} of 200 training samples leaves none of"):
        fashion(holdout=holdout).counts()
    with pytest.raises(DnaError, match=r"data\.holdout_seed -1"):
        fashion(holdout_seed=-1)
