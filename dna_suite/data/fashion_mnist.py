"""Fashion-MNIST: 28 x 28 grey pictures of clothes in idx files, as they come from upstream, torchvision or the system package."""

from __future__ import annotations

import gzip
import zlib
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from dna_suite.data.resident import Resident
from dna_suite.data.small import SmallPictures
from dna_suite.errors import DnaError

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
STEMS = {"train": "train", "test": "t10k"}
# Where Debian's package dataset-fashion-mnist puts the files.
SYSTEM = Path("/usr/share/datasets/fashion-mnist")
PLACES = ("", "FashionMNIST/raw", "raw")


class FashionMNIST(SmallPictures):
    """Fashion-MNIST, 60,000 / 10,000 for train / test; val is held out of train.

    Without `root`, and without `data/fashion_mnist`, the files of the system package dataset-fashion-mnist are read.

    Source: Xiao, Rasul and Vollgraf 2017 (arXiv 1708.07747). The mean and deviation are those of its training pictures.
    """

    layout: ClassVar[str] = (
        "  {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, with .gz or without,\n"
        "  in the folder itself or in FashionMNIST/raw below it (torchvision's place)\n"
        f"  or the system package: apt install dataset-fashion-mnist ({SYSTEM})"
    )
    downloads: ClassVar[bool] = True
    own_val: ClassVar[bool] = False
    own_size: ClassVar[int] = 28
    own_mean: ClassVar[tuple[float, float, float]] = (0.286, 0.286, 0.286)
    own_std: ClassVar[tuple[float, float, float]] = (0.353, 0.353, 0.353)
    own_shift: ClassVar[int] = 2
    # Shoes all point one way.
    own_flip: ClassVar[float] = 0.0

    @property
    def classes(self) -> list[str]:
        """The ten kinds of clothes."""
        return list(CLASSES)

    def default_root(self) -> Path:
        """The data folder, or the system package's where there is none."""
        usual = super().default_root()
        return SYSTEM if not usual.is_dir() and SYSTEM.is_dir() else usual

    def read(self, split: str, role: str) -> Resident:
        """All samples of train or test."""
        if split not in self._read:
            self._read[split] = self.read_files(split)
        return self._read[split]

    def find(self, name: str) -> Path:
        """An idx file, unpacked or not, in the places where it is kept.

        Raises:
            DnaError: it is in none of them.
        """
        root = self.folder()
        candidates = (root / place / (name + suffix) for place in PLACES for suffix in ("", ".gz"))
        found = next((path for path in candidates if path.is_file()), None)
        if found is None:
            raise DnaError(f"{root}: no {name} or {name}.gz in it or in FashionMNIST/raw. {self.ways_to_get(root)}")
        return found

    @cached_property
    def _read(self) -> dict[str, Resident]:
        return {}

    def read_files(self, split: str) -> Resident:
        """All samples of train or test, from their two files.

        Raises:
            DnaError: a file is missing, damaged, or no idx file of the right shape.
        """
        root, stem = self.folder(), STEMS[split]
        pictures = read_idx(self.find(f"{stem}-images-idx3-ubyte"), 3)
        labels = read_idx(self.find(f"{stem}-labels-idx1-ubyte"), 1)
        if pictures.shape[1:] != (28, 28):
            raise DnaError(f"{root}: {split} pictures of {pictures.shape[1]} x {pictures.shape[2]} pixels, not 28 x 28")
        if len(labels) != len(pictures):
            raise DnaError(f"{root}: {len(pictures)} {split} pictures, but {len(labels)} labels")
        if len(labels) and labels.max() >= len(CLASSES):
            raise DnaError(f"{root}: label {labels.max()} in {split}; Fashion-MNIST's are 0 to 9")
        return Resident(pictures[:, None], labels.astype(np.int64))


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The uint8 array of an idx file, plain or with gzip.

    Raises:
        DnaError: the file is damaged, or holds something else than a uint8 array with so many dimensions.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, OSError, zlib.error) as problem:
        raise DnaError(f"{path}: damaged or cut ({problem}); fetch it again") from None
    head = 4 + 4 * dimensions
    if len(content) < head or content[:4] != bytes((0, 0, 8, dimensions)):
        raise DnaError(f"{path}: no idx file of bytes in {dimensions} dimension{'s' if dimensions > 1 else ''}")
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, head, 4))
    if len(content) - head != np.prod(shape, dtype=np.int64):
        raise DnaError(f"{path}: {len(content) - head} bytes for an array of {' x '.join(map(str, shape))}; fetch it again")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)
