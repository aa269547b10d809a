"""Toy twins of the robustness sets: digits that are hard, renditions or sketches, that moved, and pictures that are no digit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from dna_suite.data.digits import read_digits, scale_digits, split_digits
from dna_suite.data.robustness_folders import known_ids
from dna_suite.data.toy_pictures import SYNSETS, save

SIDE = 32
# With a crop ratio of 0.9 a model of 32 pixels sees 32 of 35: the digit as large as it was trained on.
MARGIN = 3
EACH = 40
SKETCHES = 24
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


def sketch(grey: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The edges of the ink in black on white."""
    return 255 - outline(grey, other, generator)


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
    """The layout that the archives unpack to, in JPEGs: 240 in six class folders of each of A, R and O, and sets of ten classes.

    All are made from digits that no model of the digits was trained on: V2 from those of the validation part, moved a little, the
    others from those of the test part. In imagenet-o, as in the real one, a folder is a class that the model knows and its
    pictures are of none.
    """
    levels, labels = read_levels("test")
    for place, (name, digits) in enumerate(FOLDERS.items()):
        for digit in digits:
            for number, picture in enumerate(draw_class(levels, labels, digit, place, DRAWINGS[name])):
                save(picture, folder / name / SYNSETS[digit] / f"{number:06d}.jpg")
    for digit in range(10):
        drawn = draw_class(levels, labels, digit, len(FOLDERS), (sketch,))
        for number, picture in zip(range(SKETCHES), drawn, strict=False):
            save(picture, folder / "sketch" / SYNSETS[digit] / f"sketch_{number}.JPEG")
    write_val(folder, levels, labels)
    write_v2(folder)


def read_levels(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Grey levels float64 [n, side, side] and labels [n] of the digits of a split."""
    ink, labels = read_digits()
    chosen = split_digits(labels)[split]
    return scale_digits(ink[chosen], SIDE).astype(np.float64), labels[chosen]


def write_val(folder: Path, levels: np.ndarray, labels: np.ndarray) -> None:
    """ImageNet's val with ten class folders, and its ReaL labels: of ten pictures one has a second label and one has none."""
    known, real = read_indices(), []
    order = np.argsort(labels, kind="stable")
    for number, (grey, digit) in enumerate(zip(levels[order], labels[order].tolist(), strict=True), start=1):
        save(frame(grey), folder / "val" / SYNSETS[digit] / f"ILSVRC2012_val_{number:08d}.JPEG")
        also = {4: [known[(digit + 1) % 10]]}.get(number % 10, [])
        real.append([] if number % 10 == 0 else [known[digit], *also])
    (folder / "real.json").write_text(json.dumps(real), encoding="utf-8")


def write_v2(folder: Path) -> None:
    """ImageNet-V2's layout, whose class folders are numbers: the digits of the validation part twice, moved by up to 2 pixels."""
    known = read_indices()
    levels, labels = read_levels("val")
    for number, (grey, digit) in enumerate(zip([*levels, *levels], [*labels, *labels], strict=True)):
        moved = np.roll(grey, np.random.default_rng(number).integers(-2, 3, 2), axis=(0, 1))
        place = folder / "imagenetv2-matched-frequency-format-val" / str(known[digit])
        save(frame(moved), place / f"{number:08x}.jpeg")


def read_indices() -> list[int]:
    """The ImageNet class index of each digit's synset."""
    place = {name: index for index, name in enumerate(known_ids())}
    return [place[name] for name in SYNSETS]


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
