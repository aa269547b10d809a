"""Labelled picture files: their paths in little memory, and one file to one sample."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dna_suite.data.pictures import UnreadablePicture, decode_picture, read_bytes

Transform = Callable[[Tensor], Tensor]


class Paths:
    """Many paths as one block of bytes with offsets; a list of texts would be copied into every forked worker page by page.

    Args:
        names: paths, relative to a folder that the owner knows.
    """

    def __init__(self, names: Sequence[str]) -> None:
        encoded = [os.fsencode(name) for name in names]
        self.text = b"".join(encoded)
        self.offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    @classmethod
    def join(cls, text: bytes, offsets: np.ndarray) -> Paths:
        """Paths from their block of bytes and the n + 1 places where they begin and end."""
        paths = cls.__new__(cls)
        paths.text, paths.offsets = text, offsets
        return paths

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> str:
        return os.fsdecode(self.text[self.offsets[index] : self.offsets[index + 1]])

    def select(self, indices: np.ndarray) -> Paths:
        """These paths only, in this order."""
        return Paths([self[index] for index in indices])

    def locate(self, root: Path, index: int) -> str:
        """The whole path of one of them below `root`."""
        return f"{root}/{self[index]}"

    def read(self, root: Path, index: int) -> bytes:
        """The content of the file at one of them below `root`.

        Raises:
            UnreadablePicture: it is missing or cannot be read.
        """
        return read_bytes(self.locate(root, index))


class PictureSamples:
    """Pictures with labels; the picture decoded last is kept, so that adjacent copies of a sample share one decoding.

    A sample is `image` uint8 [3, size, size] and `label`. With `on_error` "skip" an unreadable file gives a black picture with
    `counted` False and its path as `skipped`.

    Args:
        root: folder that the paths are relative to.
        paths: where the n pictures are read from.
        labels: [n] int64 class indices.
        transform: decoded picture to the model's size.
        size: side of the result, pixels.
        max_pixels: a picture with more is unreadable.
        on_error: raise or skip.
    """

    def __init__(
        self, root: Path, paths: Paths, labels: np.ndarray, transform: Transform, size: int, max_pixels: int, on_error: str
    ) -> None:
        assert len(paths) == len(labels)
        self.root, self.paths, self.labels = root, paths, labels
        self.transform, self.size, self.max_pixels, self.on_error = transform, size, max_pixels, on_error
        self._last: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        label = int(self.labels[index])
        try:
            return {"image": self.transform(self.decode(index)), "label": label}
        except UnreadablePicture:
            if self.on_error == "raise":
                raise
            return {"label": label, **blank(self.size, self.path(index))}

    def select(self, indices: np.ndarray) -> PictureSamples:
        """These samples only, in this order."""
        paths, labels = self.paths.select(indices), self.labels[indices]
        return PictureSamples(self.root, paths, labels, self.transform, self.size, self.max_pixels, self.on_error)

    def path(self, index: int) -> str:
        """Where a sample lies."""
        return self.paths.locate(self.root, index)

    def decode(self, index: int) -> Tensor:
        """The whole picture of a sample, uint8 [3, height, width].

        Raises:
            UnreadablePicture: see `read_picture`.
        """
        if self._last is None or self._last[0] != index:
            # The next picture takes the memory of the one before while that is in the cache.
            self._last = None
            self._last = (index, self.read(index))
        return self._last[1]

    def read(self, index: int) -> Tensor:
        """As `decode`, without the picture that is kept: several threads may call it."""
        return decode_picture(self.paths.read(self.root, index), self.path(index), self.max_pixels)

    def find_problem(self, index: int) -> str | None:
        """What is wrong with the file of a sample, or None."""
        try:
            self.read(index)
        except UnreadablePicture as problem:
            return str(problem)
        return None


def blank(size: int, path: str) -> dict[str, Any]:
    """What stands in for an unreadable picture: black, not counted, with its path."""
    return {"image": torch.zeros(size, size, 3, dtype=torch.uint8).permute(2, 0, 1), "counted": False, "skipped": path}
