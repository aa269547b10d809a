import numpy as np
import pytest
import torch

from dna_suite.data.erasing import draw_box, erase


def test_boxes_hold_normal_noise():
    images = erase(torch.full((400, 3, 32, 32), 9.0), 0.25, np.random.default_rng(0))
    changed = (images != 9).flatten(1).any(1)
    assert 75 <= changed.sum() <= 125  # 100 expected, deviation 8.7
    noise = images[images != 9]
    # About 50,000 draws: mean and deviation within four standard errors.
    assert noise.mean().abs() < 0.02
    assert abs(noise.std() - 1) < 0.02


def test_all_channels_of_one_box():
    images = erase(torch.full((20, 3, 32, 48), 9.0), 1.0, np.random.default_rng(1))
    for image in images:
        rows, columns = torch.where((image != 9).all(0))
        box = image[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert (box != 9).all()
        assert (image != 9).sum() == box.numel()
        assert 0.015 < box[0].numel() / (32 * 48) < 0.35


@pytest.mark.parametrize(("probability", "changes"), [(0.0, False), (1.0, True)])
def test_probability(probability, changes):
    images = torch.zeros(5, 3, 16, 16)
    erase(images, probability, np.random.default_rng(0))
    assert bool(images.any()) is changes


def test_draws_belong_to_the_generator():
    first, again, other = (erase(torch.zeros(3, 3, 16, 16), 1.0, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_box_that_never_fits():
    assert draw_box(4, 4, (1.0, 1.0), (1.0, 1.0), np.random.default_rng(0)) is None
