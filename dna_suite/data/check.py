"""Looking at a data set before anything is trained on it: counts, classes, files that cannot be read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from dna_suite.data.base import Data
from dna_suite.data.shown_pictures import ShownPictures
from dna_suite.errors import DnaError


@dataclass(frozen=True)
class SplitReport:
    """What one split holds.

    Args:
        split: train, val or test.
        source: where it is read from.
        samples: their number, after the holdout and `data.subset`.
        per_class: [classes] samples of each class.
        unreadable: one line per file that cannot be read, path first.
    """

    split: str
    source: str
    samples: int
    per_class: np.ndarray
    unreadable: tuple[str, ...]


@dataclass(frozen=True)
class DataReport:
    """What a data set holds.

    Args:
        classes: class names in label order.
        splits: one report for each split that could be listed.
        problems: one text for each split that could not.
        notes: what is worth knowing, and no fault.
    """

    classes: tuple[str, ...]
    splits: tuple[SplitReport, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether every split could be listed and every file read."""
        return not self.problems and not any(report.unreadable for report in self.splits)


def check_data(data: Data, threads: int = 2) -> DataReport:
    """List every split and read every file once, whole.

    Args:
        data: a data module.
        threads: files read at a time.
    """
    splits: list[SplitReport] = []
    problems: list[str] = []
    for split in data.splits:
        try:
            splits.append(check_split(data, split, threads, splits))
        except DnaError as problem:
            if str(problem) not in problems:
                problems.append(str(problem))
    for report in splits:
        # Where val is a part of train, train is counted whole.
        if report.split != "val" or data.holdout is None:
            data.compare_count(report.split, len(data.read(report.split, "test").labels))
    try:
        classes = tuple(data.classes)
    except DnaError:
        classes = ()
    return DataReport(classes, tuple(splits), tuple(problems), tuple(data.notes))


def check_split(data: Data, split: str, threads: int, done: list[SplitReport]) -> SplitReport:
    """Count one split and read its files; what was read for another split of the same source is not read again."""
    samples = data.samples(split)
    source = data.source(split)
    per_class = np.bincount(samples.labels, minlength=len(data.classes))
    same = next((report for report in done if report.source == source), None)
    if same is not None:
        unreadable = same.unreadable
    else:
        # A picture that is shown under many corruptions is one file.
        files = samples.pictures if isinstance(samples, ShownPictures) else samples
        with ThreadPoolExecutor(threads) as pool:
            found = pool.map(files.find_problem, range(len(files.labels)))
            unreadable = tuple(problem for problem in found if problem)
    return SplitReport(split, source, len(samples.labels), per_class, unreadable)
