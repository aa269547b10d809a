"""`dna list`: the names that a recipe may use, what each one is, and the recipes that ship."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dna_suite.catalogue import BACKBONES, DATASETS, METRICS, OPERATORS, PATTERNS, TASKS
from dna_suite.cli.argv import Parser
from dna_suite.cli.shipped import FOLDERS, shipped_files
from dna_suite.errors import UnknownName
from dna_suite.runs.tables import WIDTH

SUMMARY = "attentions, backbones, tasks, data sets, recipes"

Rows = list[tuple[str, ...]]


def run(arguments: list[str]) -> int:
    """Print one list, or all of them.

    Raises:
        DnaError: there is no list of that name.
    """
    parser = Parser("dna list", SUMMARY)
    parser.add_argument("what", nargs="*", metavar="LIST", help=f"{', '.join(LISTS)}; all of them unless told")
    chosen = parser.parse_args(arguments).what or list(LISTS)
    for name in chosen:
        if name not in LISTS:
            raise UnknownName("list", name, LISTS)
    print("\n\n".join(_shown(name, LISTS[name]()) for name in chosen))
    return 0


def attention_rows() -> Rows:
    """Each operator: name, formula, options with their defaults, source."""
    return [
        (name, entry.formula, " ".join(f"{option}={default}" for option, default in entry.options.items()), entry.source)
        for name, entry in OPERATORS.items()
    ]


def pattern_rows() -> Rows:
    """Each sparse pattern: name and what it keeps."""
    return [(name, text) for name, text in PATTERNS.items()]


def backbone_rows() -> Rows:
    """Each size of each backbone: its shape."""
    return [
        (name, size, f"width {vit.dim}, {vit.depth} blocks, {vit.heads} heads, patch {vit.patch}{', distilled' * vit.distilled}")
        for name, sizes in BACKBONES.items()
        for size, vit in sizes.items()
    ]


def task_rows() -> Rows:
    """Each task: its class."""
    return [(name, target.name) for name, target in TASKS.items()]


def data_rows() -> Rows:
    """Each data set: the task that it serves."""
    return [(name, f"task {task}") for task, sets in DATASETS.items() for name in sets]


def metric_rows() -> Rows:
    """Each metric: how it is shown and what it means."""
    return [(name, "percent" if metric.percent else "number", metric.meaning) for name, metric in METRICS.items()]


def recipe_rows() -> Rows:
    """Each shipped recipe and fragment: its name and the first line of its comment."""
    return [(f"{folder}/{path.name}", first_comment(path)) for folder in FOLDERS for path in shipped_files(folder)]


def first_comment(path: Path) -> str:
    """The first comment line of a YAML file without its mark; empty where there is none."""
    with path.open(encoding="utf-8") as file:
        line = file.readline().strip()
    return line.removeprefix("#").strip() if line.startswith("#") else ""


LISTS: dict[str, Callable[[], Rows]] = {
    "attention": attention_rows,
    "patterns": pattern_rows,
    "backbones": backbone_rows,
    "tasks": task_rows,
    "data": data_rows,
    "recipes": recipe_rows,
    "metrics": metric_rows,
}


def _shown(name: str, rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return f"{name}:\n  none"
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(
        [f"{name}:", *(f"  {line}" if len(line) <= WIDTH - 2 else f"  {line[: WIDTH - 5].rstrip()}..." for line in lines)]
    )
