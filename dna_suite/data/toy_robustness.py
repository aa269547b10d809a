"""Toy twins of ImageNet-A, -R and -O: digits that are hard, that are renditions, and pictures that are no digit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from dna_suite.data.digits import read_digits, scale_digits, split_digits
from dna_suite.data.toy_pictures import SYNSETS, save

SIDE = 32
# With a crop ratio of 0.9 a model of 32 pixels sees 32 of 35: the digit as large as it was trained on.
MARGIN = 3
EACH = 40
# The digits whose folders a set has; like the real class lists they overlap.
FOLDERS = {"imagenet-a": (0, 1, 2, 3, 4, 5), "imagenet-r": (2, 4, 5, 6, 7, 9), "imagenet-o": (0, 1, 3, 6, 8, 9)}

Drawing = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]


def add_noise(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Grey levels [side, side] with noise of deviation 70."""
    return grey + generator.normal(0, 70, grey.shape)


def cut_out(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Grey levels with a dark square of 14 pixels."""
    top, left = generator.integers(2, SIDE - 16, 2)
    cut = grey.copy()
    cut[top : top + 14, left : left + 14] = 0
    return cut


def lay_on_texture(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Grey levels over stripes of a random direction and width."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    angle, width = generator.uniform(0, np.pi), generator.uniform(3, 7)
    stripes = 80 + 80 * np.sin((rows * np.sin(angle) + columns * np.cos(angle)) * 2 * np.pi / width)
    return np.maximum(grey, stripes)


def invert(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Dark ink on light paper."""
    return 255 - grey


def outline(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The edges of the ink, without its inside."""
    down, right = np.gradient(grey)
    return 3 * np.hypot(down, right)


def colour(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Ink and paper of random colours, [side, side, 3]."""
    paper, pen = generator.uniform(0, 160, 3), generator.uniform(60, 255, 3)
    return paper + grey[..., None] / 255 * (pen - paper)


def overlay(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Two digits on top of each other."""
    return np.maximum(grey, other)


def join_halves(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The left half of one digit beside the left half of another, turned round."""
    half = SIDE // 2
    return np.concatenate([grey[:, :half], other[::-1, :half]], axis=1)


def shuffle_quarters(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The quarters of a digit, each at the opposite corner."""
    return np.roll(grey, (SIDE // 2, SIDE // 2), axis=(0, 1))


DRAWINGS: dict[str, tuple[Drawing, ...]] = {
    "imagenet-a": (add_noise, cut_out, lay_on_texture),
    "imagenet-r": (invert, outline, colour),
    "imagenet-o": (overlay, join_halves, shuffle_quarters),
}


def write_robustness(folder: Path) -> None:
    """The layout that the archives unpack to: 240 JPEGs in six class folders for each set, and val with the ten classes.

    All are made from digits of the test part, which no model of the digits was trained on. In imagenet-o, as in the real one,
    a folder is a class that the model knows and its pictures are of none.
    """
    ink, labels = read_digits()
    chosen = split_digits(labels)["test"]
    levels, labels = scale_digits(ink[chosen], SIDE).astype(np.float64), labels[chosen]
    for digit, synset in enumerate(SYNSETS):
        for number, grey in enumerate(levels[labels == digit]):
            save(frame(grey), folder / "val" / synset / f"ILSVRC2012_val_{10_000 * digit + number:08d}.JPEG")
    for place, (name, digits) in enumerate(FOLDERS.items()):
        for digit in digits:
            for number, picture in enumerate(draw_class(levels, labels, digit, place, DRAWINGS[name])):
                save(picture, folder / name / SYNSETS[digit] / f"{number:06d}.jpg")


def draw_class(
    levels: np.ndarray, labels: np.ndarray, digit: int, place: int, drawings: tuple[Drawing, ...]
) -> Iterator[Image.Image]:
    """The pictures of one class folder, each kind of drawing in turn.

    Args:
        levels: [n, side, side] grey levels of the digits.
        labels: [n] which digit each is.
        digit: whose folder it is.
        place: number of the set, so that each set draws otherwise.
        drawings: the kinds.
    """
    own, others = levels[labels == digit], levels[labels != digit]
    for number in range(EACH):
        # A digit that comes again is drawn in another way.
        draw = drawings[(number + number // len(own)) % len(drawings)]
        generator = np.random.default_rng([place, digit, number])
        other = others[int(generator.integers(len(others)))]
        yield frame(draw(own[number % len(own)], other, generator))


def frame(picture: np.ndarray) -> Image.Image:
    """Levels [side, side] or [side, side, 3], clipped to 0 to 255, with a margin of their edge."""
    before = MARGIN // 2
    padding = [(before, MARGIN - before)] * 2 + [(0, 0)] * (picture.ndim - 2)
    return Image.fromarray(np.pad(picture.clip(0, 255).round().astype(np.uint8), padding, mode="edge"))
