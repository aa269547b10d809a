"""A test's results per picture, images.csv: enough to score the test again without the model."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dna_suite.data.robustness import SETS, RobustnessSets
from dna_suite.data.samples import PictureSamples
from dna_suite.errors import DnaError
from dna_suite.metrics.robustness import ImageResults, score_sets
from dna_suite.runs.folder import IMAGE_RESULTS, write_json, write_text
from dna_suite.runs.record import read_result

COLUMNS = ["set", "path", "confidence", "correct", "correct_all_classes"]


def write_image_results(folder: Path, results: ImageResults, data: RobustnessSets) -> None:
    """Write FOLDER/images.csv, one line for each picture in the order of the test part.

    `set` is a, r, o or val; `path` is below data.root; `confidence` has every digit; `correct` (1 or 0) is among the classes of
    the set, `correct_all_classes` among all.

    Args:
        folder: of the evaluation.
        results: of each picture, in order.
        data: what was tested.
    """
    samples = data.samples("test")
    assert isinstance(samples, PictureSamples)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for index, confidence, correct, correct_all in results.rows():
        writer.writerow([SETS[data.sets[index]], samples.paths[index], repr(confidence), int(correct), int(correct_all)])
    write_text(folder / IMAGE_RESULTS, text.getvalue())


def read_image_results(path: Path) -> tuple[list[str], ImageResults]:
    """The set of each picture, and its results.

    Raises:
        DnaError: a line is not as `write_image_results` writes it, with file and line; or a set has no picture.
    """
    sets: list[str] = []
    rows: list[tuple[float, bool, bool]] = []
    with path.open(newline="", encoding="utf-8") as lines:
        reader = csv.reader(lines)
        if next(reader, None) != COLUMNS:
            raise DnaError(f"{path}:1: the first line is {','.join(COLUMNS)}")
        for fields in reader:
            try:
                name, _, confidence, *hits = fields
                correct, correct_all = ({"0": False, "1": True}[hit] for hit in hits)
                rows.append((float(confidence), correct, correct_all))
            except (ValueError, KeyError):
                name = ""
            if name not in SETS:
                raise DnaError(f"{path}:{reader.line_num}: {','.join(fields)[:80]!r} is no line of {', '.join(COLUMNS)}")
            sets.append(name)
    lacking = [name for name in SETS if name not in sets]
    if lacking:
        raise DnaError(f"{path}: no picture of set {', '.join(lacking)}")
    columns = [np.array([row[place] for row in rows]) for place in range(3)]
    return sets, ImageResults(np.arange(len(rows)), *columns)


def rescore(folders: Iterable[str | Path]) -> list[Path]:
    """Score every images.csv below some folders again and put the metrics into the result.json beside it.

    Returns:
        The files that were scored.

    Raises:
        DnaError: there is none, or one cannot be read.
    """
    files = sorted({path for folder in folders for path in Path(folder).rglob(IMAGE_RESULTS)})
    if not files:
        raise DnaError(f"no {IMAGE_RESULTS} below {', '.join(map(str, folders))}: a test of task robustness writes it")
    for path in files:
        record = read_result(path.parent)
        for name, (value, samples) in score_sets(*read_image_results(path)).items():
            record["metrics"][f"test/{name}"] = {**record["metrics"].get(f"test/{name}", {}), "value": value, "samples": samples}
        write_json(path.parent / "result.json", record)
    return files
