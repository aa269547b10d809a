"""`dna list`: the names that a recipe may use, what each one is, and the recipes that ship."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dna_suite.catalogue import (
    BACKBONES,
    DATASETS,
    METRICS,
    OPERATORS,
    PATTERNS,
    TASKS,
    ConViT,
    Cost,
    Swin,
    ViT,
)
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
    """Each operator: formula, streams, options with their defaults, cost, engine, kept maps, source; a line each."""
    rows: Rows = []
    for name, entry in OPERATORS.items():
        rows += [(name, "formula", entry.formula), ("", "streams", " ".join(entry.streams))]
        if entry.options:
            rows.append(("", "options", " ".join(f"{option}={default}" for option, default in entry.options.items())))
        if entry.cost is not None:
            rows.append(("", "cost", _cost(entry.cost)))
            rows += [("", "engine", entry.cost.engine), ("", "keeps", _kept(entry.cost))]
        rows.append(("", "source", entry.source))
    return rows


def _cost(cost: Cost) -> str:
    return f"{cost.multiply_adds:.3g} x softmax's multiply-adds in ViT-B, {cost.parameters:.3g} x its layer's parameters"


def _kept(cost: Cost) -> str:
    if not cost.keeps_map or "always" in cost.keeps_map:
        return "N x N maps" if cost.keeps_map else f"no N x N map above {cost.written_out} tokens"
    return f"N x N maps with {' or '.join(cost.keeps_map)}, else none above {cost.written_out} tokens"


def pattern_rows() -> Rows:
    """Each sparse pattern: kept pairs, options with their defaults, engine at many patches, source; a line each."""
    rows: Rows = []
    for name, entry in PATTERNS.items():
        options = [f"{option}={default}" for option, default in entry.options.items()]
        rows.append((name, "pairs", entry.formula))
        rows += [("", "options", " ".join(options[first : first + 5])) for first in range(0, len(options), 5)]
        rows.append(("", "engine", "offsets on a CPU, else dense, masked" if entry.diagonal else "dense, masked"))
        rows.append(("", "source", entry.source))
    return rows


def backbone_rows() -> Rows:
    """Each size of each backbone: its shape."""
    return [
        (name, size, f"width {shape.dim}, {shape.depth} blocks, {shape.heads} heads, patch {shape.patch}{_special(shape)}")
        for name, sizes in BACKBONES.items()
        for size, shape in sizes.items()
    ]


def _special(shape: ViT | Swin | ConViT) -> str:
    match shape:
        case Swin():
            return f", {len(shape.depths)} stages, windows {shape.window} x {shape.window}"
        case ConViT():
            return f", the first {shape.local} gated"
        case _:
            return ", distilled" * shape.distilled


def task_rows() -> Rows:
    """Each task: its class."""
    return [(name, target.name) for name, target in TASKS.items()]


def data_rows() -> Rows:
    """Each data set: the tasks that it serves."""
    names = dict.fromkeys(name for sets in DATASETS.values() for name in sets)
    return [(name, f"task {', '.join(task for task, sets in DATASETS.items() if name in sets)}") for name in names]


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
