"""Little trees of pictures for tests."""

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"a": (200, 0, 0), "b": (0, 200, 0), "c": (0, 0, 200), "d": (200, 200, 0)}


def write_solid(path: Path, colour: tuple[int, int, int], side: int = 16) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (side, side), colour).save(path)
    return path


def write_tree(root: Path, train: str = "abcd", val: str = "abcd", number: int = 5) -> Path:
    """Class folders of solid-colour PNGs; a class is a letter."""
    for split, names in (("train", train), ("val", val)):
        for name in names:
            for i in range(number):
                write_solid(root / split / name / f"{name}{i}.png", COLOURS[name])
    return root


def write_noise(path: Path, width: int, height: int, seed: int = 0, **settings) -> Path:
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC).save(path, **settings)
    return path
