"""The parts of a test that is made of several sets: which one a sample is of, and which classes are right for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NO_LABEL = -1


@dataclass(frozen=True)
class Parts:
    """What the samples of a test part are, in order.

    Args:
        sets: keys of the sets in the order of their samples; of these only the last may have several parts.
        names: of the parts: a set, as "a", or "c/fog/3" for one corruption at one severity.
        of: int16 [n], which of `names` each sample is of.
        labels: int64 [n], class index of each sample.
        several: int64 [m, k], all labels of the m samples of set real, rows filled up with `NO_LABEL`.
    """

    sets: Sequence[str]
    names: Sequence[str]
    of: np.ndarray
    labels: np.ndarray
    several: np.ndarray

    def set_of(self, index: np.ndarray) -> np.ndarray:
        """Which of `sets` some samples are of, int64 [n].

        Args:
            index: int64 [n], places in the test part.
        """
        return np.minimum(self.of[index], len(self.sets) - 1).astype(np.int64)

    def right_classes(self, index: np.ndarray) -> np.ndarray:
        """The classes that are right for some samples, int64 [n, k], rows filled up with `NO_LABEL`.

        Args:
            index: int64 [n], places in the test part.
        """
        labels = self.labels[index][:, None]
        if "real" not in self.sets:
            return labels
        number = self.names.index("real")
        own = self.of[index] == number
        right = np.full((len(index), self.several.shape[1]), NO_LABEL)
        right[:, :1] = labels
        # The samples of a set stand together.
        right[own] = self.several[index[own] - int(np.argmax(self.of == number))]
        return right

    def counts(self) -> dict[str, int]:
        """Samples of each set."""
        found = np.bincount(self.set_of(np.arange(len(self.of))), minlength=len(self.sets))
        return dict(zip(self.sets, found.tolist(), strict=True))


def pad_labels(several: Sequence[Sequence[int]]) -> np.ndarray:
    """Lists of labels as int64 [n, longest], filled up with `NO_LABEL`."""
    padded = np.full((len(several), max(map(len, several), default=1)), NO_LABEL)
    for row, labels in zip(padded, several, strict=True):
        row[: len(labels)] = labels
    return padded
