"""Tables from records: runs found below folders, grouped by what they are over seeds, compared with softmax."""

from __future__ import annotations

import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dna_suite.catalogue import METRICS, OPERATORS, Metric
from dna_suite.errors import DnaError, UnknownName
from dna_suite.runs.published import add_published
from dna_suite.runs.record import read_result
from dna_suite.runs.tables import Table, difference, measure, quantity

# Folders below a run that hold no records and may hold thousands of files.
SKIPPED = {"checkpoints", "predictions", "tensorboard", "wandb", "mlflow", "__pycache__"}
SPLITS = ("test", "val")

# What should be the same for rows that are compared: words for a note -> key in the record.
CONDITIONS = {
    "sample counts": "samples",
    "evaluation transforms": "transform",
    "subsets": "subset",
    "training epochs": "epochs",
    "starting weights": "init_from",
}


@dataclass(frozen=True)
class Run:
    """One record and the folder it lies in."""

    folder: Path
    result: dict[str, Any]

    @property
    def finished(self) -> bool:
        """False where training was stopped; an evaluation on its own counts as finished."""
        training = self.result["training"]
        return training is None or bool(training["finished"])

    @property
    def label(self) -> str:
        """The attention's label, with layers and options where they are not the defaults."""
        attention = self.result["attention"]
        extra = [] if attention["layers"] == "all" else [f"layers={attention['layers']}"]
        extra += [f"{name}={value}" for name, value in sorted(attention["options"].items())]
        return f"{self.result['label']} [{' '.join(extra)}]" if extra else str(self.result["label"])

    @property
    def is_baseline(self) -> bool:
        """True for plain softmax attention in every layer."""
        attention = self.result["attention"]
        return attention["name"] == "softmax" and attention["pattern"] is None


@dataclass
class Group:
    """The runs of one row: same everything, different seeds."""

    label: str
    runs: list[Run]

    def values(self, metric: str) -> list[float | None]:
        """The metric of each seed that has it."""
        return [run.result["metrics"][metric]["value"] for run in self.runs if metric in run.result["metrics"]]

    def mean(self, metric: str) -> float | None:
        """Mean over seeds, or None where no seed has it or one has no finite number."""
        values = [value for value in self.values(metric) if value is not None]
        return statistics.fmean(values) if values and len(values) == len(self.values(metric)) else None

    def deviation(self, metric: str) -> float | None:
        """Sample deviation over seeds (n - 1), or None for fewer than two."""
        values = [value for value in self.values(metric) if value is not None]
        return statistics.stdev(values) if len(values) > 1 and len(values) == len(self.values(metric)) else None


@dataclass
class Report:
    """What the report of some folders holds.

    Args:
        runs: every record that could be read, finished or not.
        tables: one for each recipe and split, toy data last.
        unfinished: a line for each run that was stopped or has no record yet.
        unreadable: a line for each record that could not be read.
    """

    runs: list[Run] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def build_report(folders: Iterable[str | Path], metrics: Sequence[str] = ()) -> Report:
    """Read every record below the folders and compare what belongs together.

    Args:
        folders: run folders or folders above them.
        metrics: names to show, as test/top1, or top1 for every split; empty shows all.

    Raises:
        DnaError: a folder is missing, or there is no run below any of them; or a metric is in no record.
    """
    report = Report()
    for folder, has_result in _run_folders(folders):
        if not has_result:
            report.unfinished.append(f"{folder}: no result yet")
            continue
        try:
            run = Run(folder, read_result(folder / "result.json"))
        except DnaError as error:
            report.unreadable.append(str(error))
            continue
        report.runs.append(run)
        if not run.finished:
            training = run.result["training"]
            report.unfinished.append(f"{folder}: stopped after {training['epochs']} epochs, {training['steps']} steps")
    if not (report.runs or report.unfinished or report.unreadable):
        raise DnaError(
            f"no run below {', '.join(str(folder) for folder in folders)}: `dna fit` writes a result.json for each run"
        )
    finished = [run for run in report.runs if run.finished]
    chosen = _chosen(metrics, finished)
    tables = defaultdict(list)
    for run in finished:
        tables[_table_key(run)].append(run)
    for key in sorted(tables):
        report.tables.extend(_tables(tables[key], chosen))
    return report


def _run_folders(folders: Iterable[str | Path]) -> list[tuple[Path, bool]]:
    """Folders that hold a record (True) or only a recipe (False), each once however often it is named."""
    found: dict[Path, tuple[Path, bool]] = {}
    for given in folders:
        root = Path(given)
        if not root.is_dir():
            raise DnaError(f"no folder {root}; `dna report` takes the folder that --runs names, runs/ unless told")
        for parent, inner, files in os.walk(root):
            inner[:] = sorted(name for name in inner if name not in SKIPPED and not name.startswith("."))
            if "result.json" in files or "recipe.yaml" in files:
                found.setdefault(Path(parent).resolve(), (Path(parent), "result.json" in files))
    return list(found.values())


def _chosen(metrics: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """The full names of the metrics to show: part by part of a split, where it has parts, in catalogue order."""
    present = {name for run in runs for name in run.result["metrics"]}
    for given in metrics:
        if not any(given in (name, _bare(name)) for name in present):
            raise UnknownName("metric", given, present)
    order = list(METRICS)

    def rank(name: str) -> tuple[str, int, str]:
        part, _, own = _bare(name).rpartition("/")
        return (part, order.index(own) if own in order else len(order), own)

    return sorted((name for name in present if not metrics or name in metrics or _bare(name) in metrics), key=rank)


def _table_key(run: Run) -> tuple[bool, str, str, str, str, str]:
    """What runs must share to stand in one table."""
    result = run.result
    data = {key: result["data"].get(key) for key in ("name", "subset")}
    return (
        result["toy"],
        result["recipe"],
        result["task"],
        str(result.get("trained_by", "")),
        json.dumps(result["backbone"], sort_keys=True),
        json.dumps(data, sort_keys=True),
    )


def _groups(runs: Sequence[Run], notes: list[str]) -> list[Group]:
    """One group for each attention, softmax first, then catalogue order; a second record of a seed is left out and noted."""
    rows: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in runs:
        seeds = rows[json.dumps(run.result["attention"], sort_keys=True)]
        first = seeds.setdefault(run.result["seed"], run)
        if first is not run:
            notes.append(f"{run.label} seed {run.result['seed']} is there twice: {first.folder} is shown, {run.folder} is not")
    groups = [Group(next(iter(seeds.values())).label, [seeds[seed] for seed in sorted(seeds)]) for seeds in rows.values()]
    order = list(OPERATORS)

    def rank(group: Group) -> tuple[int, str]:
        name = group.runs[0].result["attention"]["name"]
        return (order.index(name) if name in order else len(order), group.label)

    return sorted(groups, key=rank)


def _tables(runs: Sequence[Run], chosen: Sequence[str]) -> list[Table]:
    """One table for each split that the runs were measured on."""
    notes: list[str] = []
    groups = _groups(runs, notes)
    present = [name for name in chosen if any(group.values(name) for group in groups)]
    splits = sorted({_split(name) for name in present}, key=lambda split: (split not in SPLITS, split != "test", split))
    first = runs[0].result
    tables = []
    for split in splits:
        names = [name for name in present if _split(name) == split]
        table = Table(f"{_title(first)}, {split}", toy=first["toy"], notes=[*notes, *_notes(groups, names)])
        _fill(table, groups, names)
        add_published(table, first["task"])
        tables.append(table)
    return tables


def _title(result: Mapping[str, Any]) -> str:
    backbone, data = result["backbone"], result["data"]
    parts = [f"{result['recipe']}: {backbone.get('name', '')}"]
    if backbone.get("size", "paper") != "paper":
        parts.append(str(backbone["size"]))
    if data.get("subset"):
        parts.append(f"subset of {data['subset']}")
    if result.get("trained_by"):
        parts.append(f"trained by {result['trained_by']}")
    return ", ".join(parts)


def _fill(table: Table, groups: Sequence[Group], names: Sequence[str]) -> None:
    """Columns of one split: seeds, each metric with its gain over softmax, samples, cost."""
    baseline = next((group for group in groups if group.runs[0].is_baseline), None)
    table.add("attention", [group.label for group in groups])
    table.add("seeds", [_listed(run.result["seed"] for run in group.runs) for group in groups])
    for name in names:
        kind = METRICS.get(name.rpartition("/")[2], Metric("", percent=False))
        table.add(_bare(name), [measure(group.mean(name), group.deviation(name), kind.percent) for group in groups])
        if kind.percent and kind.higher_is_better is not None and baseline is not None and len(groups) > 1:
            sign = 1.0 if kind.higher_is_better else -1.0
            base = baseline.mean(name)
            table.add("gain", ["" if group is baseline else difference(group.mean(name), base, sign) for group in groups])
    table.add("samples", [_listed(_samples(group, names)) for group in groups])
    table.add("parameters", [quantity(group.runs[0].result["parameters"]) for group in groups])
    table.add("multiply-adds", [quantity(group.runs[0].result["multiply_adds"]) for group in groups])


def _samples(group: Group, names: Sequence[str]) -> list[int]:
    metrics = [run.result["metrics"] for run in group.runs]
    return sorted({entries[name]["samples"] for entries in metrics for name in names if name in entries})


def _listed(numbers: Iterable[int]) -> str:
    listed = list(numbers)
    return " ".join(str(number) for number in listed) if len(listed) <= 4 else f"{len(listed)} values"


def _notes(groups: Sequence[Group], names: Sequence[str]) -> list[str]:
    """What a reader must know before comparing rows: conditions that are not the same everywhere."""
    notes = []
    for group in groups:
        for name in names:
            if 0 < len(group.values(name)) < len(group.runs):
                notes.append(f"{group.label}: {len(group.values(name))} of {len(group.runs)} seeds have {name}")

    runs = [run for group in groups for run in group.runs if any(name in run.result["metrics"] for name in names)]
    for what, key in CONDITIONS.items():
        notes.extend(_differing(what, [(f"{run.label} seed {run.result['seed']}", _condition(run, names, key)) for run in runs]))
    for run in runs:
        if skipped := run.result["data"].get("skipped"):
            notes.append(f"{run.label} seed {run.result['seed']}: {skipped} unreadable pictures were skipped")
    for told in dict.fromkeys(_told_subset(run) for run in runs):
        notes.extend([told] if told else [])
    chosen = dict.fromkeys(run.label for run in runs if (run.result["training"] or {}).get("selected_on_test"))
    if chosen and any(_split(name) == "test" for name in names):
        notes.append(f"{', '.join(chosen)}: the checkpoint was chosen on the test part itself; data.holdout takes one of train")
    for group in groups:
        if len({run.result["parameters"] for run in group.runs}) > 1:
            notes.append(f"{group.label}: seeds differ in their number of parameters")
    return notes


def _told_subset(run: Run) -> str | None:
    """That a benchmark was run on less than its published classes, in words."""
    protocol = run.result["data"].get("protocol") or {}
    if not protocol.get("subset_ok"):
        return None
    folders = ", ".join(f"{name} {count}" for name, count in protocol["folders"].items())
    return f"data.subset_ok: not the published protocol: class folders {folders}, of {protocol['classes']} classes of the model"


def _condition(run: Run, names: Sequence[str], key: str) -> Any:
    """One condition of a run's metrics: what a metric carries itself comes before what the record says."""
    result = run.result
    entries = [result["metrics"][name] for name in names if name in result["metrics"]]
    if key == "samples":
        return sorted({entry["samples"] for entry in entries})
    if key == "epochs":
        return (result["training"] or {}).get("epochs")
    if key == "init_from":
        start = result.get("init_from") or {}
        return start.get("recipe") or start.get("path") or "none"
    own = [entry[key] for entry in entries if key in entry]
    return own[0] if own else result.get(key, result["data"].get(key))


def _differing(what: str, pairs: Sequence[tuple[str, Any]]) -> list[str]:
    """A note that lists who has which value, or none where all have the same; of mappings only the keys that differ."""
    if all(value == pairs[0][1] for _, value in pairs):
        return []
    if all(isinstance(value, dict) for _, value in pairs):
        keys = [key for key in pairs[0][1] if any(value.get(key) != pairs[0][1][key] for _, value in pairs)]
        pairs = [(who, {key: value.get(key) for key in keys}) for who, value in pairs]
    holders: dict[str, list[str]] = defaultdict(list)
    for who, value in pairs:
        holders[str(value)].append(who)
    return [f"{what} differ: " + "; ".join(f"{value} ({', '.join(who)})" for value, who in holders.items())]


def _split(metric: str) -> str:
    return metric.partition("/")[0]


def _bare(metric: str) -> str:
    return metric.partition("/")[2] or metric
