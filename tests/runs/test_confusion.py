"""The files of a test's results per class: what a reader of CSV finds, and a picture that is one."""

import csv
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from dna_suite.runs.confusion import write_class_results


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_a_small_set_gets_a_matrix(tmp_path: Path) -> None:
    classes = ["cat", 'Ram C/V, "Cargo" Van', "naïve"]
    counts = torch.tensor([[3, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0]])
    assert write_class_results(tmp_path, classes, counts, "toy, test: dna") is None
    assert rows(tmp_path / "per_class.csv") == [
        ["class", "samples", "correct", "accuracy"],
        ["cat", "4", "3", "0.750000"],
        [classes[1], "0", "0", "n/a"],
        ["naïve", "2", "1", "0.500000"],
    ]
    assert rows(tmp_path / "confusion.csv") == [
        ["true \\ predicted", *classes],
        ["cat", "3", "1", "0"],
        [classes[1], "0", "0", "0"],
        ["naïve", "1", "0", "1"],
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["confusion.csv", "confusion.png", "per_class.csv"]


def test_samples_without_a_prediction_have_a_column_of_their_own(tmp_path: Path) -> None:
    write_class_results(tmp_path, ["a", "b"], torch.tensor([[1, 0, 2], [0, 1, 0]]), "")
    assert rows(tmp_path / "confusion.csv") == [
        ["true \\ predicted", "a", "b", "(none)"],
        ["a", "1", "0", "2"],
        ["b", "0", "1", "0"],
    ]
    assert rows(tmp_path / "per_class.csv")[1] == ["a", "3", "1", "0.333333"]


def test_a_large_set_gets_a_list_of_the_pairs_that_occur(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    counts = torch.zeros(1000, 1001, dtype=torch.int64)
    counts[7, 7], counts[7, 999], counts[3, 3], counts[5, 1000] = 2, 5, 2, 1
    line = write_class_results(tmp_path, [f"class {number}" for number in range(1000)], counts, "")
    assert rows(tmp_path / "confusion.csv") == [
        ["true", "predicted", "count"],
        ["class 7", "class 999", "5"],
        ["class 3", "class 3", "2"],
        ["class 7", "class 7", "2"],
        ["class 5", "(none)", "1"],
    ]
    assert len(rows(tmp_path / "per_class.csv")) == 1001
    assert line == "no confusion.png: matplotlib is not installed: pip install 'dna_suite[plots]'"
    assert not (tmp_path / "confusion.png").exists()


def test_the_picture_shows_the_shares_of_each_row(tmp_path: Path) -> None:
    # A class that is always right, one that is always taken for the first, one without samples.
    write_class_results(tmp_path, ["a", "b", "c"], torch.tensor([[40, 0, 0, 0], [7, 0, 0, 0], [0, 0, 0, 0]]), "title")
    with Image.open(tmp_path / "confusion.png") as picture:
        colours = dict((colour, count) for count, colour in picture.convert("RGB").getcolors(1 << 20))
    # The ends of the map Blues, and light grey; one cell of nine is the unit, and numbers take a little of the dark ones.
    dark, light, grey = colours[(8, 48, 107)], colours[(247, 251, 255)], colours[(211, 211, 211)]
    assert light == pytest.approx(4 / 3 * grey, rel=0.05)
    assert dark == pytest.approx(2 / 3 * grey, rel=0.05)
