"""Pictures as a test shows them: as they are, or one picture many times, each time corrupted in another way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dna_suite.data.corruptions import Corruption
from dna_suite.data.samples import PictureSamples

AS_IT_IS = -1


class ShownPictures:
    """Samples that show a picture each; adjacent ones that show the same one share its decoding and its crop.

    Args:
        pictures: each picture once.
        shown: int64 [n], the picture of each sample.
        corrupted: int16 [n], which of `corruptions` a sample has, or `AS_IT_IS`.
        corruptions: each once.
        first: the picture that corruptions count from, so that their random part does not depend on what else is tested.
    """

    def __init__(
        self,
        pictures: PictureSamples,
        shown: np.ndarray,
        corrupted: np.ndarray,
        corruptions: Sequence[Corruption] = (),
        first: int = 0,
    ) -> None:
        assert len(shown) == len(corrupted)
        self.pictures, self.shown, self.corrupted = pictures, shown, corrupted
        self.corruptions, self.first = corruptions, first
        self.labels = pictures.labels[shown]
        self._last: tuple[int, Mapping[str, Any]] | None = None

    def __len__(self) -> int:
        return len(self.shown)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        picture, corrupted = int(self.shown[index]), int(self.corrupted[index])
        if self._last is None or self._last[0] != picture:
            self._last = (picture, self.pictures[picture])
        sample = self._last[1]
        if corrupted == AS_IT_IS:
            return sample
        return {**sample, "image": self.corruptions[corrupted](sample["image"], picture - self.first)}

    def select(self, indices: np.ndarray) -> ShownPictures:
        """These samples only, in this order."""
        return ShownPictures(self.pictures, self.shown[indices], self.corrupted[indices], self.corruptions, self.first)

    def name(self, index: int) -> str:
        """The path of a sample's picture below the data set's folder."""
        return self.pictures.paths[int(self.shown[index])]

    def find_problem(self, index: int) -> str | None:
        """What is wrong with the file of a sample, or None."""
        return self.pictures.find_problem(int(self.shown[index]))
