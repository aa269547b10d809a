"""JPEGs of ImageNet's usual size for measuring loaders: parts of real photographs where there are some, else drawn textures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 500, 375
QUALITY = 90
CLASSES = 4


def write_pictures(root: Path, number: int) -> dict[str, Any]:
    """Write ImageNet's layout, the same bytes each time: `number` JPEGs in train, the same ones in val.

    Args:
        root: folder; made where it is missing.
        number: pictures of a split.

    Returns:
        What the pictures are made from, their number and their mean size in bytes.
    """
    photographs, source = read_photographs()
    generator = np.random.default_rng(0)
    written = 0
    for index in range(number):
        picture = cut(photographs[index % len(photographs)], generator) if photographs else draw_texture(generator)
        for split in ("train", "val"):
            path = root / split / f"class{index % CLASSES}" / f"{index:05d}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.save(path, quality=QUALITY)
        written += path.stat().st_size
    return {"source": source, "pictures": number, "size": [WIDTH, HEIGHT], "quality": QUALITY, "mean_bytes": written // number}


def read_photographs() -> tuple[list[Image.Image], str]:
    """The photographs that scikit-learn ships, where it is installed, and what they are."""
    try:
        from sklearn.datasets import load_sample_images
    except ImportError:
        return [], "textures"
    bunch = load_sample_images()
    return [Image.fromarray(pixels) for pixels in bunch.images], "parts of scikit-learn's china.jpg and flower.jpg"


def cut(photograph: Image.Image, generator: np.random.Generator) -> Image.Image:
    """A random part of a photograph, enlarged by at most a half, some of them mirrored."""
    share = generator.uniform(2 / 3, 1) * min(photograph.width / WIDTH, photograph.height / HEIGHT)
    width, height = share * WIDTH, share * HEIGHT
    left, top = generator.uniform(0, photograph.width - width), generator.uniform(0, photograph.height - height)
    part = photograph.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if generator.random() < 0.5 else part


def draw_texture(generator: np.random.Generator) -> Image.Image:
    """Noise at every scale from the whole picture to a pixel, each octave half as strong, as in photographs."""
    levels = np.zeros((HEIGHT, WIDTH, 3))
    for octave in range(9):
        shape = (3 << octave, 4 << octave, 3)
        noise = generator.normal(0, 0.73**octave, shape).clip(-3, 3)
        layer = Image.fromarray(((noise / 6 + 0.5) * 255).astype(np.uint8)).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        levels += np.asarray(layer, dtype=np.float64) - 127.5
    return Image.fromarray((levels * 0.8 + 127.5).clip(0, 255).astype(np.uint8))
