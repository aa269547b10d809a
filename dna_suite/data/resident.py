"""Data sets that live in memory as one array of pictures: whole batches are gathered at once, without a loop over samples."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor
from torch.utils.data import Dataset

from dna_suite.data.order import IDLE, Key, draw_uniform
from dna_suite.data.pictures import UnreadablePicture
from dna_suite.data.samples import PictureSamples, Transform


class Decoded:
    """Picture files of one size that are decoded together when the first batch is asked for, and stay in memory.

    Args:
        files: the picture files; what cannot be read ends the run or is skipped, as they say.
        size: side of every picture, pixels.

    `unreadable` is row -> path of a file that could not be read; its picture is black.
    """

    def __init__(self, files: PictureSamples, size: int) -> None:
        self.files, self.size = files, size
        self.unreadable: dict[int, str] = {}

    @cached_property
    def pictures(self) -> np.ndarray:
        """All pictures [m, 3, size, size] uint8.

        Raises:
            UnreadablePicture: a file cannot be read, or has another size.
        """
        found = np.zeros((len(self.files), 3, self.size, self.size), dtype=np.uint8)

        def decode(row: int) -> None:
            try:
                found[row] = self.read(row)
            except UnreadablePicture:
                if self.files.on_error == "raise":
                    raise
                self.unreadable[row] = self.files.path(row)

        # torchvision decodes without Python's lock.
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            list(pool.map(decode, range(len(found))))
        return found

    def read(self, row: int) -> Tensor:
        """One picture, uint8 [3, size, size].

        Raises:
            UnreadablePicture: the file cannot be read, or has another size.
        """
        picture = self.files.read(row)
        if picture.shape[1:] != (self.size, self.size):
            height, width = picture.shape[1:]
            raise UnreadablePicture(f"{self.files.path(row)}: {width} x {height} pixels, not {self.size} x {self.size}")
        return picture


class Resident:
    """Pictures and labels in memory; a selection shares the pictures.

    Args:
        stored: [m, channels, height, width] uint8, one channel is grey; or files that are decoded once.
        labels: [n] int64 class indices of the samples.
        rows: [n] the picture of each sample; None where sample i is picture i.
    """

    def __init__(self, stored: np.ndarray | Decoded, labels: np.ndarray, rows: np.ndarray | None = None) -> None:
        self.stored, self.labels = stored, labels
        self.rows = np.arange(len(labels)) if rows is None else rows

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": as_colour(self.pictures[self.rows[index]]), "label": int(self.labels[index])}

    @property
    def pictures(self) -> np.ndarray:
        """All stored pictures, [m, channels, height, width]."""
        return self.stored.pictures if isinstance(self.stored, Decoded) else self.stored

    @property
    def unreadable(self) -> Mapping[int, str]:
        """Row -> path of a picture that could not be read."""
        return self.stored.unreadable if isinstance(self.stored, Decoded) else {}

    def load(self) -> Resident:
        """Itself, with the pictures in memory: before loader processes are forked, so that they share them."""
        assert self.pictures.ndim == 4
        return self

    def select(self, indices: np.ndarray) -> Resident:
        """These samples only, in this order."""
        return Resident(self.stored, self.labels[indices], self.rows[indices])

    def gather(self, indices: np.ndarray) -> np.ndarray:
        """The pictures of samples, [n, channels, height, width]."""
        return self.pictures[self.rows[indices]]

    def skipped(self, indices: np.ndarray) -> list[str]:
        """The paths of those of these samples that could not be read."""
        return [self.unreadable[row] for row in self.rows[indices].tolist() if row in self.unreadable] if self.unreadable else []

    def readable(self, indices: np.ndarray) -> np.ndarray:
        """Whether each of these samples could be read, [n] bool."""
        return ~np.isin(self.rows[indices], list(self.unreadable)) if self.unreadable else np.ones(len(indices), dtype=bool)

    def find_problem(self, index: int) -> str | None:
        """What is wrong with the file of a sample, or None."""
        try:
            if isinstance(self.stored, Decoded):
                self.stored.read(int(self.rows[index]))
        except UnreadablePicture as problem:
            return str(problem)
        return None


class Transformed(Dataset[dict[str, Any]]):
    """Resident pictures one by one, each through a transform.

    Args:
        samples: the pictures.
        transform: picture uint8 [3, height, width] to one of the model's size.
    """

    def __init__(self, samples: Resident, transform: Transform) -> None:
        self.samples, self.transform = samples.load(), transform

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = self.samples[index]
        return {**sample, "image": self.transform(sample["image"])}


class MovedBatches(Dataset[dict[str, Any]]):
    """Training batches of resident pictures, each moved and perhaps flipped as its key determines; what moves in is black.

    Moving is what padding by `shift` and cropping at a random place does.

    Args:
        samples: the pictures.
        seed: seed of the run.
        shift: largest move along an axis, pixels.
        flip: probability of a horizontal flip.
    """

    def __init__(self, samples: Resident, seed: int, shift: int, flip: float = 0.0) -> None:
        self.samples, self.seed, self.shift, self.flip = samples.load(), seed, shift, flip

    def __getitem__(self, key: Key) -> dict[str, Any]:
        return first_of(self.__getitems__([key]))

    def __getitems__(self, keys: Sequence[Key]) -> dict[str, Any]:
        """One batch; a sample that could not be read is left out, or not counted where there is no other."""
        table = np.asarray(keys, dtype=np.int64).reshape(-1, 3)
        readable = self.samples.readable(table[:, 1])
        skipped = self.samples.skipped(table[:, 1])
        if skipped and readable.any():
            table, readable = table[readable], readable[readable]
        elif skipped:
            table, readable = table[:1], readable[:1]
        indices, repeats = table[:, 1], table[:, 2]
        draws = draw_uniform(self.seed, table, 3)
        pictures = self.move(self.samples.gather(indices), draws[:, :2])
        flipped = draws[:, 2] < self.flip
        pictures[flipped] = pictures[flipped, ..., ::-1]
        batch = as_batch(pictures, self.samples.labels[indices], indices, (repeats != IDLE) & readable)
        return {**batch, "skipped": skipped} if skipped else batch

    def move(self, pictures: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Pictures [n, channels, height, width] moved by what the draws [n, 2] in [0, 1) say: down, right."""
        if self.shift == 0:
            return pictures
        edge = (self.shift, self.shift)
        windows = sliding_window_view(np.pad(pictures, ((0, 0), (0, 0), edge, edge)), pictures.shape[2:], axis=(2, 3))
        down, right = (draws * (2 * self.shift + 1)).astype(np.int64).T
        return windows[np.arange(len(pictures)), :, down, right]


class PlainBatches(Dataset[dict[str, Any]]):
    """Evaluation batches of resident pictures as they are, asked by keys (index, counted)."""

    def __init__(self, samples: Resident) -> None:
        self.samples = samples.load()

    def __getitem__(self, key: tuple[int, bool]) -> dict[str, Any]:
        return first_of(self.__getitems__([key]))

    def __getitems__(self, keys: Sequence[tuple[int, bool]]) -> dict[str, Any]:
        indices, counted = np.asarray(keys, dtype=np.int64).reshape(-1, 2).T
        readable, skipped = self.samples.readable(indices), self.samples.skipped(indices)
        batch = as_batch(self.samples.gather(indices), self.samples.labels[indices], indices, (counted == 1) & readable)
        return {**batch, "skipped": skipped} if skipped else batch


def first_of(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch of one as a sample."""
    return {name: value[0] if isinstance(value, Tensor) else value for name, value in batch.items()}


def as_batch(pictures: np.ndarray, labels: np.ndarray, indices: np.ndarray, counted: np.ndarray) -> dict[str, Any]:
    """Arrays of n samples as a batch of the suite."""
    return {
        "image": as_colour(pictures),
        "label": torch.from_numpy(labels),
        "index": torch.from_numpy(indices.copy()),
        "counted": torch.from_numpy(counted),
        "present": int(counted.sum()),
    }


def as_colour(pictures: np.ndarray) -> Tensor:
    """Pictures [..., channels, height, width] with three channels; grey becomes three equal ones."""
    return torch.from_numpy(np.repeat(pictures, 3, axis=-3) if pictures.shape[-3] == 1 else np.ascontiguousarray(pictures))
