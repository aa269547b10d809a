"""What a robustness test leaves beside its record and list of pictures: a table of corruptions, and figures."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dna_suite.data.robustness_folders import PUBLISHED
from dna_suite.errors import MissingExtra
from dna_suite.metrics.robustness import PartResults, corrupted_top1
from dna_suite.runs.folder import ROBUSTNESS_FILES, write_text
from dna_suite.runs.robustness_figures import draw_corruptions, draw_reliability, draw_response_rates

# Sets whose pictures are of no class, or are there for those alone, have no right answers.
WITHOUT_ANSWERS = ("o", "val")


def write_robustness_files(folder: Path, results: PartResults, label: str) -> str | None:
    """Write corruptions.csv, and reliability.png, response_rate.png and corruptions.png, each where there is something to show.

    What an earlier test left of these is removed.

    Args:
        folder: of the evaluation.
        results: of each sample.
        label: what was tested, for titles.

    Returns:
        A line about the figures where they could not be drawn, else None.
    """
    for name in ROBUSTNESS_FILES:
        (folder / name).unlink(missing_ok=True)
    top1, images = corrupted_top1(results), results.images
    if top1:
        write_corruptions(folder, top1, results)
    own = {name: results.of == number for number, name in enumerate(results.plain) if name not in WITHOUT_ANSWERS}
    sets = {PUBLISHED[name].title: (images.confidence[rows], images.correct[rows]) for name, rows in own.items()}
    try:
        if sets:
            draw_reliability(folder, sets, f"{label}: calibration")
            draw_response_rates(folder, sets, f"{label}: accuracy among the most confident")
        if top1:
            by_kind: dict[str, dict[int, float]] = defaultdict(dict)
            for (kind, severity), value in top1.items():
                by_kind[kind][severity] = value
            draw_corruptions(folder, by_kind, f"{label}: corrupted pictures")
    except MissingExtra as missing:
        return f"no figures: {missing}"
    return None


def write_corruptions(folder: Path, top1: Mapping[tuple[str, int], float], results: PartResults) -> None:
    """Write FOLDER/corruptions.csv: pictures, top-1 and mean confidence under each corruption at each severity."""
    pictures = np.bincount(results.of, minlength=len(results.names))
    confidence = np.bincount(results.of, weights=results.images.confidence, minlength=len(results.names))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("corruption", "severity", "samples", "top1", "confidence"))
    for (kind, severity), value in top1.items():
        number = results.names.index(f"c/{kind}/{severity}")
        samples = int(pictures[number])
        writer.writerow((kind, severity, samples, f"{value:.6f}", f"{confidence[number] / samples:.6f}"))
    write_text(folder / "corruptions.csv", text.getvalue())
