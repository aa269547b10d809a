"""A test's results per class: per_class.csv, confusion.csv and, where matplotlib is installed, confusion.png."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from dna_suite.errors import MissingExtra
from dna_suite.metrics.confusion import class_accuracies
from dna_suite.runs.figures import find_matplotlib, save_figure
from dna_suite.runs.folder import write_text

NO_PREDICTION = "(none)"
NO_SAMPLES = "n/a"
# With more classes a matrix is nearly all zeros: the file is a list of pairs, the picture has no names.
MATRIX_CLASSES = 200
NAMED_CLASSES = 60
NUMBERED_CLASSES = 20


def write_class_results(folder: Path, classes: Sequence[str], counts: Tensor, title: str) -> str | None:
    """Write the files of a test's results per class.

    Args:
        folder: the run folder, or that of an evaluation.
        classes: names in label order.
        counts: int64 [classes, classes + 1], from `ConfusionMatrix`.
        title: what was tested.

    Returns:
        A line about the picture where it could not be drawn, else None.
    """
    write_per_class(folder, classes, counts)
    write_confusions(folder, classes, counts)
    try:
        draw_confusions(folder, classes, counts, title)
    except MissingExtra as missing:
        return f"no confusion.png: {missing}"
    return None


def write_per_class(folder: Path, classes: Sequence[str], counts: Tensor) -> None:
    """Write FOLDER/per_class.csv: samples, right answers and accuracy of each class; n/a for a class without samples.

    Args:
        folder: the run folder, or that of an evaluation.
        classes: names in label order.
        counts: int64 [classes, classes + 1], from `ConfusionMatrix`.
    """
    samples, right = counts.sum(1).tolist(), counts.diagonal().tolist()
    values = class_accuracies(counts).tolist()
    accuracies = [f"{value:.6f}" if total else NO_SAMPLES for value, total in zip(values, samples, strict=True)]
    rows = zip(classes, samples, right, accuracies, strict=True)
    _write_rows(folder / "per_class.csv", ("class", "samples", "correct", "accuracy"), rows)


def write_confusions(folder: Path, classes: Sequence[str], counts: Tensor) -> None:
    """Write FOLDER/confusion.csv: a row for each true class and a column for each predicted one.

    With more than 200 classes it is a list of the pairs that occur, most frequent first: true, predicted, count. Samples whose
    logits have a NaN stand under "(none)".

    Args:
        folder: the run folder, or that of an evaluation.
        classes: names in label order.
        counts: int64 [classes, classes + 1], from `ConfusionMatrix`.
    """
    path = folder / "confusion.csv"
    columns = [*classes, NO_PREDICTION]
    if len(classes) > MATRIX_CLASSES:
        pairs: list[list[int]] = counts.nonzero().tolist()
        pairs.sort(key=lambda pair: -int(counts[pair[0], pair[1]]))
        found = [(classes[true], columns[predicted], int(counts[true, predicted])) for true, predicted in pairs]
        _write_rows(path, ("true", "predicted", "count"), found)
        return
    if not counts[:, -1].any():
        columns, counts = columns[:-1], counts[:, :-1]
    rows = ([name, *row] for name, row in zip(classes, counts.tolist(), strict=True))
    _write_rows(path, ("true \\ predicted", *columns), rows)


def draw_confusions(folder: Path, classes: Sequence[str], counts: Tensor, title: str) -> None:
    """Draw FOLDER/confusion.png: the share of each true class that was taken for each class.

    Args:
        folder: the run folder, or that of an evaluation.
        classes: names in label order.
        counts: int64 [classes, classes + 1], from `ConfusionMatrix`.
        title: what was tested.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    new_figure = find_matplotlib()
    from matplotlib.colors import PowerNorm

    number = len(classes)
    side = min(14.0, 5.0 + 0.16 * number)
    figure = new_figure(figsize=(1.12 * side + 1.0, side), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("lightgrey")
    shares = counts[:, :-1].double() / counts.sum(1, keepdim=True)
    # The root of a share: a mistake of one in a hundred can be seen.
    image = axes.imshow(shares.numpy(), cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=1), interpolation="none")
    figure.colorbar(image, ax=axes, label="share of the true class (grey: no samples)", fraction=0.05, shrink=0.7)
    axes.set(xlabel="predicted class", ylabel="true class", title=title)
    if number <= NAMED_CLASSES:
        axes.set_xticks(range(number), classes, rotation=90)
        axes.set_yticks(range(number), classes)
    if number <= NUMBERED_CLASSES:
        _write_numbers(axes, counts, shares)
    save_figure(figure, folder / "confusion.png")


def _write_numbers(axes: Any, counts: Tensor, shares: Tensor) -> None:
    for true, predicted in counts[:, :-1].nonzero().tolist():
        colour = "white" if shares[true, predicted] > 0.3 else "black"
        axes.text(predicted, true, int(counts[true, predicted]), ha="center", va="center", color=colour, fontsize=8)


def _write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())
