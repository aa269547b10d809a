"""Toy twins that are folders of JPEGs: handwritten digits of several sizes and colours, in the layouts of the real sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from dna_suite.data.digits import read_digits, split_digits
from dna_suite.errors import DnaError

# Ten of ImageNet's synsets; digit d plays the d-th.
SYNSETS = (
    "n01440764", "n01855672", "n02099601", "n02123045", "n02391049",
    "n02687172", "n03095699", "n03594945", "n04146614", "n07745940",
)  # fmt: skip
SIDES = (56, 64, 72, 88, 104)
SMALL = (64,)


def choose_digits(split: str, number: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """(digit, index, ink [8, 8]) of the first samples of each digit in train, val or test."""
    ink, labels = read_digits()
    chosen = split_digits(labels)[split]
    for digit in range(10):
        for index in chosen[labels[chosen] == digit][:number]:
            yield digit, int(index), ink[index]


def draw_digit(ink: np.ndarray, index: int, sides: tuple[int, ...] = SIDES) -> Image.Image:
    """Ink [8, 8] from 0 to 16 as a picture whose sides and colours depend on the index; every fifth is grey."""
    generator = np.random.default_rng(index)
    width, height = (int(side) for side in generator.choice(sides, 2))
    grey = Image.fromarray((ink * 255.0 / 16).astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    if index % 5 == 0:
        return grey
    share = np.asarray(grey, dtype=np.float64)[..., None] / 255
    paper, pen = generator.uniform(0, 90, 3), generator.uniform(165, 255, 3)
    return Image.fromarray((paper + share * (pen - paper)).astype(np.uint8))


def save(picture: Image.Image, path: Path) -> None:
    """A picture as a JPEG file; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, format="JPEG", quality=90)


def write_imagenet(folder: Path) -> None:
    """ImageNet's layout: ten class folders with 20 training and 5 validation JPEGs each, of several sizes, some of them grey."""
    for split, number in (("train", 20), ("val", 5)):
        for digit, index, ink in choose_digits(split, number):
            synset = SYNSETS[digit]
            name = f"{synset}_{index}" if split == "train" else f"ILSVRC2012_val_{index:08d}"
            save(draw_digit(ink, index), folder / split / synset / f"{name}.JPEG")


def write_tiny_imagenet(folder: Path) -> None:
    """Tiny-ImageNet's layout: ten classes with 20 training and 5 validation JPEGs of 64 x 64 each, some of them grey."""
    counts = dict.fromkeys(range(10), 0)
    for digit, index, ink in choose_digits("train", 20):
        synset = SYNSETS[digit]
        save(draw_digit(ink, index, SMALL), folder / "train" / synset / "images" / f"{synset}_{counts[digit]}.JPEG")
        counts[digit] += 1
    lines = []
    for number, (digit, index, ink) in enumerate(choose_digits("val", 5)):
        save(draw_digit(ink, index, SMALL), folder / "val" / "images" / f"val_{number}.JPEG")
        lines.append(f"val_{number}.JPEG\t{SYNSETS[digit]}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "wnids.txt").write_text("".join(f"{synset}\n" for synset in SYNSETS), encoding="utf-8")


def write_cars(folder: Path) -> None:
    """Stanford Cars' official layout: ten classes with 20 training and 5 test JPEGs each, labels from 1 in .mat files."""
    (folder / "devkit").mkdir(parents=True)
    names = np.array([f"Handwritten Digit {digit}" for digit in range(10)], dtype=object)
    write_mat(folder / "devkit" / "cars_meta.mat", {"class_names": names})
    places = {"train": folder / "devkit" / "cars_train_annos.mat", "test": folder / "cars_test_annos_withlabels.mat"}
    fields = [("bbox_x1", "i4"), ("bbox_y1", "i4"), ("bbox_x2", "i4"), ("bbox_y2", "i4"), ("class", "u1"), ("fname", object)]
    for split, number in (("train", 20), ("test", 5)):
        rows = []
        for place, (digit, index, ink) in enumerate(choose_digits(split, number), start=1):
            picture = draw_digit(ink, index)
            save(picture, folder / f"cars_{split}" / f"{place:05d}.jpg")
            rows.append((1, 1, *picture.size, digit + 1, f"{place:05d}.jpg"))
        write_mat(places[split], {"annotations": np.array(rows, dtype=fields)[None]})


def write_mat(path: Path, values: dict[str, np.ndarray]) -> None:
    """Variables as a MATLAB file, equal byte by byte each time.

    Raises:
        DnaError: scipy is missing.
    """
    try:
        from scipy.io import savemat
    except ImportError:
        raise DnaError("the labels of cars are .mat files: pip install 'dna_suite[cars]'") from None
    savemat(path, values)
    # The text at the front names the time.
    path.write_bytes(b"MATLAB 5.0 MAT-file, toy set".ljust(116) + path.read_bytes()[116:])
