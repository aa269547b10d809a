import numpy as np
import pytest
import torch

from dna_suite.data.cifar import CIFAR10
from dna_suite.data.fashion_mnist import FashionMNIST
from dna_suite.data.resident import MovedBatches, PlainBatches, Transformed
from dna_suite.errors import DnaError


def toy(**arguments) -> CIFAR10:
    return CIFAR10("cifar10", toy=True, **arguments)


def test_defaults_are_the_sets_own():
    data = toy()
    assert (data.size, data.crop_ratio, data.shift, data.flip, data.holdout) == (32, 1.0, 4, 0.5, 0.1)
    assert data.transform()["mean"] == [0.4914, 0.4822, 0.4465]
    assert FashionMNIST("fashion_mnist").augmentation() == {
        "gathered": "in whole batches",
        "shift": 2,
        "flip": 0.0,
        "erase": 0.0,
        "repeats": 1,
    }


def test_whole_batches_at_the_own_size():
    data = toy()
    assert isinstance(data.keyed("train"), MovedBatches)
    assert isinstance(data.keyed("test"), PlainBatches)
    assert np.array_equal(next(iter(data.test_dataloader()))["image"].numpy(), data.samples("test").gather(np.arange(50)))


@pytest.mark.parametrize(
    "arguments",
    [{"size": 40}, {"augment": "rand-m9-mstd0.5-inc1"}, {"scale": (0.5, 1.0)}, {"ratio": (1, 1)}, {"color_jitter": 0.3}],
)
def test_other_augmentations_take_pictures_one_by_one(arguments):
    data = toy(**arguments, batch=9)
    assert data.augmentation()["gathered"] == "one by one"
    assert isinstance(data.keyed("train").samples, Transformed)
    batch = next(iter(data.train_dataloader()))
    assert batch["image"].shape == (9, 3, data.size, data.size)
    again = next(iter(toy(**arguments, batch=9, workers=1).train_dataloader()))
    assert torch.equal(batch["image"], again["image"])


def test_evaluation_at_another_size_or_crop_is_the_evaluation_crop():
    plain, larger, cropped = toy(), toy(size=64), toy(crop_ratio=0.8)
    stored = torch.from_numpy(plain.samples("test").gather(np.arange(3)))
    for data in (larger, cropped):
        batch = next(iter(data.test_dataloader()))["image"][:3]
        wanted = torch.stack([data.transform_as("test")(picture) for picture in stored])
        assert torch.equal(batch, wanted)
    assert larger.transform()["resize"] == 71
    # Only evaluation is cropped: training pictures are still moved in whole batches.
    assert isinstance(cropped.keyed("train"), MovedBatches)


def test_a_shift_that_would_do_nothing_is_refused():
    with pytest.raises(DnaError, match=r"data\.shift 4: with data\.size 224 pictures are cropped"):
        toy(size=224, shift=4)
    with pytest.raises(DnaError, match=r"data\.shift 4: with data\.scale pictures are cropped"):
        toy(shift=4, scale=(0.1, 1.0))
