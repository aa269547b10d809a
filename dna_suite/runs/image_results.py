"""A test's results per picture, images.csv: enough to score the test again without the model."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dna_suite.data.corruptions import KINDS, SEVERITIES
from dna_suite.data.robustness import SETS, RobustnessSets
from dna_suite.data.shown_pictures import ShownPictures
from dna_suite.errors import DnaError
from dna_suite.metrics.robustness import ImageResults, PartResults, score_parts
from dna_suite.runs.folder import IMAGE_RESULTS, write_json, write_text
from dna_suite.runs.record import read_result
from dna_suite.runs.robustness_files import write_robustness_files

COLUMNS = ["set", "path", "confidence", "correct", "correct_all_classes"]
PARTS = frozenset([*SETS[:-1], *(f"c/{kind}/{severity}" for kind in KINDS for severity in SEVERITIES)])


def write_image_results(folder: Path, results: PartResults, data: RobustnessSets) -> None:
    """Write FOLDER/images.csv, one line for each sample in the order of the test part.

    `set` is as in `PartResults.names`; `path` is below data.root; `confidence` has every digit; `correct` (1 or 0) is among
    the classes of the set, `correct_all_classes` among all.

    Args:
        folder: of the evaluation.
        results: of each sample, in order.
        data: what was tested.
    """
    samples = data.samples("test")
    assert isinstance(samples, ShownPictures)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for index, confidence, correct, correct_all in results.images.rows():
        writer.writerow([results.names[results.of[index]], samples.name(index), repr(confidence), int(correct), int(correct_all)])
    write_text(folder / IMAGE_RESULTS, text.getvalue())


def read_image_results(path: Path) -> PartResults:
    """What `write_image_results` wrote.

    Raises:
        DnaError: a line is not as `write_image_results` writes it, with file and line.
    """
    numbers: dict[str, int] = {}
    of: list[int] = []
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
            if name not in PARTS:
                raise DnaError(f"{path}:{reader.line_num}: {','.join(fields)[:80]!r} is no line of {', '.join(COLUMNS)}")
            of.append(numbers.setdefault(name, len(numbers)))
    columns = [np.array([row[place] for row in rows]) for place in range(3)]
    return PartResults(list(numbers), np.array(of, dtype=np.int64), ImageResults(np.arange(len(rows)), *columns))


def require_counts(path: Path, results: PartResults, counts: Mapping[str, int]) -> None:
    """Refuse a list of pictures that is not as long as the record beside it says.

    Args:
        path: the list.
        results: what it holds.
        counts: set -> samples, from the record.

    Raises:
        DnaError: a set has another number of samples.
    """
    sets = np.array([name.partition("/")[0] for name in results.names])[results.of]
    for name, count in counts.items():
        found = int((sets == name).sum())
        if found != count:
            raise DnaError(f"{path}: {found:,} lines of set {name}, the test had {count:,}")


def rescore(folders: Iterable[str | Path]) -> list[Path]:
    """Score every images.csv below some folders again, and put the metrics and figures beside it.

    Returns:
        The files that were scored.

    Raises:
        DnaError: there is none, or one cannot be read or is not whole.
    """
    files = sorted({path for folder in folders for path in Path(folder).rglob(IMAGE_RESULTS)})
    if not files:
        raise DnaError(f"no {IMAGE_RESULTS} below {', '.join(map(str, folders))}: a test of task robustness writes it")
    for path in files:
        record: dict[str, Any] = read_result(path.parent)
        results = read_image_results(path)
        require_counts(path, results, record["data"]["counts"])
        for name, (value, samples) in score_parts(results).items():
            record["metrics"][f"test/{name}"] = {**record["metrics"].get(f"test/{name}", {}), "value": value, "samples": samples}
        write_json(path.parent / "result.json", record)
        write_robustness_files(path.parent, results, record["label"])
    return files
