import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from dna_suite.data.mixing import blend, draw_cut, mix, paste, smooth_one_hot


def test_labels_are_smoothed_once():
    # TRN-03
    rows = smooth_one_hot(torch.tensor([0, 1]), 10, 0.1)
    _, whole = blend(torch.zeros(2, 3, 4, 4), rows, 1.0)
    assert whole[0].tolist() == pytest.approx([0.91] + [0.01] * 9, abs=1e-7)  # float32
    _, part = blend(torch.zeros(2, 3, 4, 4), rows, 0.3)
    assert part[0].tolist() == pytest.approx([0.28, 0.64] + [0.01] * 8, abs=1e-7)


@pytest.mark.parametrize("mixup", [0.0, 0.8])
@pytest.mark.parametrize("cutmix", [0.0, 1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_of_equal_logits_is_ln_10(mixup, cutmix, smoothing):
    # TRN-02
    targets = smooth_one_hot(torch.arange(6) % 10, 10, smoothing)
    _, rows = mix(torch.rand(6, 3, 8, 8), targets, mixup, cutmix, 0.5, np.random.default_rng(0))
    assert rows.shape == (6, 10)
    assert cross_entropy(torch.zeros(6, 10), rows).item() == pytest.approx(math.log(10), rel=1e-6)  # float32


@pytest.mark.parametrize("number", [1, 2, 3, 16, 33])
def test_any_batch_size(number):
    # TRN-01
    images, targets = torch.rand(number, 3, 8, 8), smooth_one_hot(torch.arange(number) % 5, 5, 0.1)
    generator = np.random.default_rng(0)
    for _ in range(20):
        mixed, rows = mix(images, targets, 0.8, 1.0, 0.5, generator)
        assert mixed.shape == images.shape
        assert torch.allclose(rows.sum(1), torch.ones(number), atol=1e-6)  # float32 sums of 5
        if number == 1:
            assert torch.allclose(mixed, images, atol=1e-6)
            assert torch.allclose(rows, targets, atol=1e-6)


def test_mixup_share():
    images = torch.stack([torch.zeros(3, 4, 4), torch.ones(3, 4, 4)])
    mixed, _ = blend(images, torch.eye(2), 0.25)
    assert torch.equal(mixed[0], torch.full((3, 4, 4), 0.75))
    assert torch.equal(mixed[1], torch.full((3, 4, 4), 0.25))


def test_cutmix_targets_follow_the_pasted_area():
    images = torch.stack([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)])
    mixed, targets = paste(images, torch.eye(2), (2, 6, 5, 8))
    assert mixed[0].sum() == 12
    assert mixed[0, 0, 2:6, 5:8].min() == 1
    assert torch.allclose(targets, torch.tensor([[52 / 64, 12 / 64], [12 / 64, 52 / 64]]))
    assert torch.equal(images[0], torch.zeros(1, 8, 8))


def test_cut_box_is_cut_off_at_the_border():
    generator = np.random.default_rng(0)
    boxes = [draw_cut(20, 30, 0.75, generator) for _ in range(500)]
    assert all(0 <= top < bottom <= 20 and 0 <= left < right <= 30 for top, bottom, left, right in boxes)
    assert max((bottom - top, right - left) for top, bottom, left, right in boxes) == (10, 15)
    assert min(bottom - top for top, bottom, _, _ in boxes) < 10


def test_draws_belong_to_the_generator():
    images, targets = torch.rand(4, 3, 8, 8), torch.eye(4)
    first, again, other = (mix(images, targets, 0.8, 1.0, 0.5, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])


def test_switch():
    images, targets = torch.rand(4, 3, 16, 16), torch.eye(4)

    def is_cut(switch: float) -> bool:
        mixed, _ = mix(images, targets, 0.8, 1.0, switch, np.random.default_rng(0))
        return bool((mixed == images).any())

    assert not is_cut(0.0)
    assert is_cut(1.0)


def test_off_is_off():
    images, targets = torch.rand(4, 3, 8, 8), torch.eye(4)
    mixed, rows = mix(images, targets, 0.0, 0.0, 0.5, np.random.default_rng(0))
    assert mixed is images
    assert rows is targets
