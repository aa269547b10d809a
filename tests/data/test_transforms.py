import random

import numpy as np
import pytest
import torch
from PIL import Image

from dna_suite.cli.bench_timm_data import operations, share_flip
from dna_suite.data.pictures import read_picture
from dna_suite.data.transforms import (
    CentreCrop,
    TrainCrop,
    build_rand_augment,
    draw_box,
    jitter_color,
    keep_one_bit,
    resize,
    resize_side,
)
from dna_suite.errors import DnaError

MEAN = (0.485, 0.456, 0.406)


def noise(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """Smooth noise: what pictures look like at the scale of a pixel."""
    small = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    picture = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


def test_resize_side_is_rounded_down():
    # IMG-14
    assert resize_side(224, 0.9) == 248
    assert resize_side(224, 0.875) == 256
    assert resize_side(32, 1.0) == 32


def test_evaluation_sizes():
    crop = CentreCrop(224, 0.9)
    assert crop.short == 248
    for height, width in ((300, 500), (500, 300), (224, 224), (50, 90)):
        assert crop(noise(height, width)).shape == (3, 224, 224)


def test_resize_is_antialiased():
    # IMG-13: every fourth column white; without antialiasing whole columns are missed and the mean is 0.
    stripes = torch.zeros(3, 256, 256, dtype=torch.uint8)
    stripes[:, :, ::4] = 255
    small = resize(stripes, 64, 64).float()
    assert small[:, 4:-4, 4:-4].mean() == pytest.approx(64.0, abs=0.5)  # rounded to whole levels


def test_pixels_stay_channels_last():
    # Else the resize is a third slower and each batch is turned round once more.
    for height, width in ((40, 60), (32, 32)):
        image = torch.zeros(height, width, 3, dtype=torch.uint8).permute(2, 0, 1)
        for transform in (CentreCrop(32, 1.0), crop(flip=1.0), crop(augment="rand-m9")):
            assert transform(image).permute(1, 2, 0).stride()[1:] == (3, 1)


@pytest.mark.parametrize("size", [(300, 500), (333, 247)])
def test_evaluation_crop_is_timms(size):
    from timm.data import create_transform

    image = noise(*size)
    theirs = create_transform(224, is_training=False, interpolation="bicubic", crop_pct=0.9, mean=(0, 0, 0), std=(1, 1, 1))
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    difference = (CentreCrop(224, 0.9)(image).float() - theirs(picture) * 255).abs()
    # Pillow's fixed-point weights against torch's: single levels, and few of them.
    assert difference.mean() < 0.02
    assert difference.max() <= 2


def timm_transform(**settings):
    """timm's transform to uint8 pictures."""
    from timm.data import create_transform

    return create_transform(224, interpolation="bicubic", mean=MEAN, use_prefetcher=True, **settings)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "P"])
@pytest.mark.parametrize("size", [(500, 375), (333, 500), (224, 224), (240, 239)])
def test_evaluation_with_pillow_is_timms_to_the_bit(tmp_path, mode, size):
    path = tmp_path / ("x.png" if mode == "P" else "x.jpg")
    picture = Image.fromarray(noise(size[1], size[0]).permute(1, 2, 0).numpy()).convert(mode)
    picture.save(path)
    for crop_ratio in (0.9, 0.875, 1.0):
        theirs = timm_transform(crop_pct=crop_ratio)(Image.open(path).convert("RGB"))
        ours = CentreCrop(224, crop_ratio, "pil")(read_picture(path))
        assert np.array_equal(ours.numpy(), np.asarray(theirs)), crop_ratio


def photographs() -> list[Image.Image]:
    """Four parts of 500 x 375 pixels of each of two photographs."""
    from sklearn.datasets import load_sample_images

    corners = [(0, 0), (140, 0), (0, 52), (140, 52)]
    return [Image.fromarray(whole[y : y + 375, x : x + 500]) for whole in load_sample_images().images for x, y in corners]


def test_evaluation_pixels_of_photographs_are_timms_within_a_hundredth_of_a_level():
    difference = 0.0
    for picture in photographs():
        theirs = np.asarray(timm_transform(crop_pct=0.9)(picture)).astype(int)
        ours = CentreCrop(224, 0.9)(torch.from_numpy(np.array(picture)).permute(2, 0, 1))
        difference += np.abs(ours.numpy() - theirs).mean() / 8
    assert difference < 0.01


@pytest.mark.parametrize("augment", ["none", "rand-m9-mstd0.5-inc1"])
def test_training_pixels_of_photographs_are_timms_with_the_same_draws(augment):
    box = {"scale": (0.08, 1.0), "ratio": (0.67, 1.5)}
    policy = None if augment == "none" else augment
    theirs = timm_transform(is_training=True, auto_augment=policy, color_jitter=0, hflip=0.5, **box)
    share_flip(theirs)
    for operation in operations(theirs):
        keep_one_bit(operation)
    ours = crop(size=224, augment=augment, **box)
    differences = []
    for seed, picture in enumerate(photographs() * 8):
        image = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
        pixels = np.asarray(seeded(theirs, picture, seed)).astype(int)
        differences.append(np.abs(seeded(ours, image, seed).numpy() - pixels).mean())
    # A level off before a posterize, solarize or equalise is a jump behind it: the bound is on the mean over pictures.
    assert np.mean(differences) < 0.05
    assert np.median(differences) < 0.03


def test_training_box_is_timms():
    from timm.data.transforms import RandomResizedCropAndInterpolation

    for height, width in ((300, 500), (500, 333), (20, 400), (400, 20)):
        picture = Image.new("L", (width, height))
        for seed in range(50):
            random.seed(seed)
            theirs = RandomResizedCropAndInterpolation.get_params(picture, (0.08, 1.0), (3 / 4, 4 / 3))
            random.seed(seed)
            assert draw_box(height, width, (0.08, 1.0), (3 / 4, 4 / 3)) == theirs


def crop(**changes) -> TrainCrop:
    settings = {"size": 32, "scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3), "flip": 0.5, "augment": "none", "color_jitter": 0.0}
    return TrainCrop(**{**settings, **changes}, mean=MEAN)


def seeded(transform, image: torch.Tensor, seed: int) -> torch.Tensor:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return transform(image)


@pytest.mark.parametrize("changes", [{}, {"augment": "rand-m9-mstd0.5-inc1"}, {"color_jitter": 0.4}])
def test_training_crop_is_a_function_of_the_seeds(changes):
    transform, image = crop(**changes), noise(60, 80)
    first, again, other = (seeded(transform, image, seed) for seed in (0, 0, 1))
    assert first.shape == (3, 32, 32)
    assert first.dtype == torch.uint8
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_flip():
    whole = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0)}
    image = noise(32, 32)
    assert torch.equal(crop(flip=0.0, **whole)(image), image)
    assert torch.equal(crop(flip=1.0, **whole)(image), image.flip(-1))


def test_color_jitter_yields_to_rand_augment():
    # timm leaves jitter out where a policy is set.
    image, policy = noise(40, 40), "rand-m9-mstd0.5-inc1"
    assert torch.equal(
        seeded(crop(augment=policy, color_jitter=0.4), image, 3), seeded(crop(augment=policy, color_jitter=0.0), image, 3)
    )


def test_color_jitter_of_strength_0_changes_nothing():
    image = noise(16, 16)
    assert (jitter_color(image, 0.0).int() - image.int()).abs().max() <= 1  # blended in floats, truncated


def test_posterize_always_keeps_a_bit():
    # timm 1.0.31 asks for 0 bits at magnitude 10, where Pillow 13 raises; 20,000 plans reach it some 60 times.
    augment = build_rand_augment("rand-m9-mstd0.5-inc1", 224, MEAN)
    posterize = next(operation for operation in augment.ops if operation.name.startswith("Posterize"))
    assert posterize.level_fn(10.0, posterize.hparams) == (1,)
    assert posterize.level_fn(5.0, posterize.hparams) == (2,)
    for operation in augment.ops:
        if operation is not posterize:
            operation.aug_fn = leave
    asked = []
    level = posterize.level_fn
    posterize.level_fn = lambda *given: asked.append((given[0], *level(*given))) or asked[-1][1:]
    random.seed(0)
    np.random.seed(0)
    picture = Image.new("RGB", (1, 1), (200, 100, 50))
    for _ in range(20_000):
        augment(picture)
    # Each of two operations is a posterize once in 15 and done once in two.
    assert len(asked) > 1000
    assert min(bits for _, bits in asked) == 1
    # As timm has it, some would be 0, which Pillow refuses.
    assert sum(level.level(magnitude, posterize.hparams)[0] == 0 for magnitude, _ in asked) > 10


def leave(image: Image.Image, *level: object, **settings: object) -> Image.Image:
    return image


@pytest.mark.parametrize("policy", ["rnd-m9", "rand-x9", "augmix-m3"])
def test_policy_that_is_not_understood(policy):
    with pytest.raises(DnaError, match=r"data\.augment"):
        build_rand_augment(policy, 224, MEAN)
