import numpy as np
import pytest
from PIL import Image

from dna_suite.data.shifts import OPERATIONS, shift_rows

FILL = (124, 116, 104)
BICUBIC = Image.Resampling.BICUBIC


def picture(width: int, height: int) -> Image.Image:
    """Smooth noise, a plain surface and sharp edges."""
    small = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    pixels = np.array(Image.fromarray(small).resize((width, height), BICUBIC))
    pixels[: height // 3, : width // 2] = (255, 254, 37)
    pixels[-height // 4 :, ::2] = 0
    return Image.fromarray(pixels)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("size", [(224, 224), (61, 40)])
def test_pixels_are_pillows(name, size):
    from timm.data.auto_augment import NAME_TO_OP

    image = picture(*size)
    levels = [-0.3, -0.113, 0.0, 1 / 64, 0.29, 0.45, -1.0, 2.5]
    if name in ("TranslateX", "TranslateY"):
        levels = [-100, -7.25, 0, 1, 3.7, 60, 10_000]
    for level in levels:
        ours, theirs = (
            np.asarray(function(image, level, fillcolor=FILL, resample=BICUBIC)).astype(int)
            for function in (OPERATIONS[name], NAME_TO_OP[name])
        )
        difference = np.abs(ours - theirs)
        # Pillow computes in doubles and cuts off what is behind the point: sums within 0.001 of a level fall on either side.
        assert difference.max() <= 1, level
        assert difference.mean() < 0.01, level


def test_a_whole_distance_moves_pixels_as_they_are():
    pixels = np.asarray(picture(20, 12))
    moved = shift_rows(pixels, np.full(12, 3.0), FILL)
    assert np.array_equal(moved[:, :17], pixels[:, 3:])
    assert (moved[:, 17:] == FILL).all()
    assert np.array_equal(shift_rows(pixels, np.zeros(12), FILL), pixels)


def test_each_row_has_its_distance():
    pixels = np.asarray(picture(20, 3))
    moved = shift_rows(pixels, np.array([0.0, -2.0, 25.0]), FILL)
    assert np.array_equal(moved[0], pixels[0])
    assert np.array_equal(moved[1, 2:], pixels[1, :18])
    assert (moved[1, :2] == FILL).all()
    assert (moved[2] == FILL).all()
