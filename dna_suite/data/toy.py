"""Toy twins: a data set's own layout on disk, in miniature, made from the handwritten digits that the package ships."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from dna_suite.data.digits import read_digits, split_digits
from dna_suite.errors import DnaError, UnknownName

# Ten of ImageNet's synsets; digit d plays the d-th.
SYNSETS = (
    "n01440764", "n01855672", "n02099601", "n02123045", "n02391049",
    "n02687172", "n03095699", "n03594945", "n04146614", "n07745940",
)  # fmt: skip
SIDES = (56, 64, 72, 88, 104)


def write_toy(name: str, folder: str | Path) -> Path:
    """Write the toy twin of a data set; the folder appears whole or not at all.

    Args:
        name: data set.
        folder: where it goes; it must be missing or empty.

    Raises:
        DnaError: there is no toy of that name, or the folder holds something.
    """
    folder = Path(folder).expanduser()
    if name not in WRITERS:
        raise UnknownName("toy data set", name, WRITERS)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DnaError(f"{folder} exists and is not empty: name a new folder for the toy set")
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        WRITERS[name](part)
        part.chmod(0o777 & ~current_umask())
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def make_twin(name: str, folder: Path) -> Path:
    """The toy twin of a data set, written where it is missing; several processes may ask at once."""
    if not folder.is_dir():
        try:
            write_toy(name, folder)
        except (OSError, DnaError):
            if not folder.is_dir():
                raise
    return folder


def current_umask() -> int:
    """The permission bits that new folders of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_imagenet(folder: Path) -> None:
    """ImageNet's layout: ten class folders with 20 training and 5 validation JPEGs each, of several sizes, some of them grey."""
    ink, labels = read_digits()
    splits = split_digits(labels)
    for split, number in (("train", 20), ("val", 5)):
        chosen = splits[split]
        for digit, synset in enumerate(SYNSETS):
            target = folder / split / synset
            target.mkdir(parents=True)
            for index in chosen[labels[chosen] == digit][:number]:
                name = f"{synset}_{index}" if split == "train" else f"ILSVRC2012_val_{index:08d}"
                draw_digit(ink[index], int(index)).save(target / f"{name}.JPEG", quality=90)


def draw_digit(ink: np.ndarray, index: int) -> Image.Image:
    """Ink [8, 8] from 0 to 16 as a picture whose sides and colours depend on the index; every fifth is grey."""
    generator = np.random.default_rng(index)
    width, height = (int(side) for side in generator.choice(SIDES, 2))
    grey = Image.fromarray((ink * 255.0 / 16).astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    if index % 5 == 0:
        return grey
    share = np.asarray(grey, dtype=np.float64)[..., None] / 255
    paper, pen = generator.uniform(0, 90, 3), generator.uniform(165, 255, 3)
    return Image.fromarray((paper + share * (pen - paper)).astype(np.uint8))


WRITERS: dict[str, Callable[[Path], None]] = {"imagenet": write_imagenet}
