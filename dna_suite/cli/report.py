"""`dna report`: compare runs, over seeds and with softmax, from their result.json files."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dna_suite.cli.argv import Parser
from dna_suite.errors import DnaError
from dna_suite.runs.report import Report, Run, build_report
from dna_suite.runs.tables import place

SUMMARY = "compare runs: mean and deviation over seeds, gain over softmax"


def run(arguments: list[str]) -> int:
    """Print the tables of some run folders, and write them as CSV or Markdown where asked.

    Returns:
        0, or 1 where a record could not be read.

    Raises:
        DnaError: an option is wrong, a folder is missing or holds no run, or a file cannot be written.
    """
    parser = Parser("dna report", SUMMARY)
    parser.add_argument("folders", nargs="+", metavar="RUNS", help="run folder, or folder above run folders")
    parser.add_argument("--csv", metavar="FILE", help="one row for each run and metric")
    parser.add_argument(
        "--markdown", metavar="FILE", help="the tables as Markdown; a file with report markers keeps what stands around them"
    )
    parser.add_argument("--rescore", action="store_true", help="first score every images.csv of a test again, without the model")
    parser.add_argument("--metric", action="append", default=[], metavar="NAME", help="show only this one; repeat it")
    given = parser.parse_args(arguments)
    if given.rescore:
        from dna_suite.runs.image_results import rescore

        for path in rescore(given.folders):
            print(f"dna: scored {path} again", file=sys.stderr)
    report = build_report(given.folders, given.metric)
    if given.csv:
        _write(Path(given.csv), rows=list(csv_rows(report.runs)))
    if given.markdown:
        _write_markdown(Path(given.markdown), report)
    _print(report)
    return 1 if report.unreadable else 0


def markdown(report: Report) -> str:
    """All tables of a report as Markdown."""
    return "\n\n".join(table.markdown() for table in report.tables) or "No finished run."


def csv_rows(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """One row of raw values for each run and metric; fractions stay fractions."""
    for run in runs:
        result = run.result
        attention, training = result["attention"], result["training"] or {}
        for metric, entry in result["metrics"].items():
            yield {
                "recipe": result["recipe"],
                "task": result["task"],
                "attention": attention["name"],
                "pattern": attention["pattern"],
                "layers": attention["layers"],
                "options": json.dumps(attention["options"], sort_keys=True),
                "backbone": result["backbone"].get("name"),
                "size": result["backbone"].get("size"),
                "data": result["data"].get("name"),
                "subset": entry.get("subset", result["data"].get("subset")),
                "toy": result["toy"],
                "seed": result["seed"],
                "metric": metric,
                "value": entry["value"],
                "samples": entry["samples"],
                "parameters": result["parameters"],
                "multiply_adds": result["multiply_adds"],
                "epochs": training.get("epochs"),
                "steps": training.get("steps"),
                "seconds": training.get("seconds"),
                "finished": run.finished,
                "commit": result["commit"],
                "torch": result["versions"].get("torch"),
                "folder": str(run.folder),
            }


def _print(report: Report) -> None:
    blocks = [table.text() for table in report.tables]
    for heading, lines in (("unfinished, in no table:", report.unfinished), ("not readable, in no table:", report.unreadable)):
        if lines:
            blocks.append("\n".join([heading, *(f"  {line}" for line in lines)]))
    if report.runs and not any(run.result["metrics"] for run in report.runs):
        blocks.append("no run has a metric yet: `dna test --run DIR` measures one")
    text = "\n\n".join(blocks)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.replace("±", "+-").encode("ascii", "replace").decode()
    print(text)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    if not rows:
        raise DnaError(f"no run has a metric yet, so {path} would be empty; nothing was written")
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise DnaError(f"{path} cannot be written: {error.strerror}") from None


def _write_markdown(path: Path, report: Report) -> None:
    try:
        document = path.read_text(encoding="utf-8") if path.is_file() else ""
        path.write_text(place(document, markdown(report)), encoding="utf-8")
    except DnaError as error:
        raise DnaError(f"{path} was not written: {error}") from None
    except OSError as error:
        raise DnaError(f"{path} cannot be written: {error.strerror}") from None
