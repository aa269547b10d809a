"""Speed and memory of attention operators and layers against their written-out form, softmax, timm's layers and a dense mask."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from dna_suite.catalogue import OPERATORS
from dna_suite.cli.bench_plot import plot_growth
from dna_suite.cli.bench_subjects import ENGINES, PASSES, Shape, describe_subject, layer_subjects, streams_subjects
from dna_suite.cli.bench_timing import Cost, compare, take_turns
from dna_suite.errors import DnaError
from dna_suite.runs.figures import find_matplotlib
from dna_suite.runs.tables import Table

LENGTHS, BATCH, ROUNDS = (197, 785, 2304), (16, 2, 1), 7
PARTS = {"streams": streams_subjects, "layer": layer_subjects}
TIMM = {"softmax": "timm Attention", "differential": "timm DiffAttention"}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times attentions at several lengths, everything of one length in turns.

    Args:
        options: operators, lengths, batch, dim, heads, dtype, device, parts, engines, rounds, threads, plot.

    Returns:
        "results": for each part and length its subjects (time, samples a second, bytes kept for the backward pass, multiply-adds)
        and the ratios between them; "slopes": how cost grows with the length; "line" for the reader.

    Raises:
        DnaError: a length or a batch is out of range, or the device is not there.
        MissingExtra: a plot is asked for, and matplotlib is not installed.
    """
    lengths = options.lengths or LENGTHS
    batches = _batches(options.batch, lengths)
    device = options.device or "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise DnaError(f"--device {device}: torch sees no CUDA device here")
    if options.plot:
        find_matplotlib()
        if len(set(lengths)) < 2:
            raise DnaError(f"--plot {options.plot}: growth needs two lengths or more")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    labels = list(dict.fromkeys(options.operators or [*OPERATORS, "softmax+fibottention"]))
    results = []
    for tokens, batch in zip(lengths, batches, strict=True):
        dtype = getattr(torch, options.dtype or "float32")
        engines = ENGINES if options.engines is None else [name.replace("_", " ") for name in options.engines]
        shape = Shape(batch, tokens, options.dim or 768, options.heads or 12, dtype, device, engines)
        for part in options.parts or PARTS:
            results.append(_measure_group(part, labels, shape, options.rounds or ROUNDS))
            # A long benchmark shows each group as it ends.
            print(f"{_table(results[-1]).text()}\n", flush=True)
    slopes = growth(results)
    if options.plot:
        plot_growth(results, slopes, Path(options.plot))
    line = f"{len(results)} groups" + (f"\n\n{_slope_table(slopes).text()}\n" if slopes else "")
    settings = {"dtype": options.dtype or "float32", "device": device, "threads": options.threads}
    return {"line": line, **settings, "results": results, "slopes": slopes}


def _batches(given: list[int] | None, lengths: Iterable[int]) -> list[int]:
    lengths = list(lengths)
    batches = list(given or (BATCH if tuple(lengths) == LENGTHS else (1,)))
    batches = batches * len(lengths) if len(batches) == 1 else batches
    if len(batches) != len(lengths):
        raise DnaError(f"--batch {' '.join(map(str, batches))}: one number, or one for each of {len(lengths)} lengths")
    for name, values in (("lengths", lengths), ("batch", batches)):
        if min(values) < 1:
            raise DnaError(f"--{name} {' '.join(map(str, values))}: numbers from 1")
    return batches


def _measure_group(part: str, labels: list[str], shape: Shape, rounds: int) -> dict[str, Any]:
    """Every subject of one part and length, and the ratios between them."""
    subjects = PARTS[part](labels, shape)
    costs: dict[str, dict[str, list[Cost]]] = {}
    for passes in PASSES:
        calls = {name: getattr(subject, passes) for name, subject in subjects.items()}
        costs[passes] = take_turns(calls, rounds, shape.device)
    described = {name: describe_subject(subject, costs, shape.batch, shape.device) for name, subject in subjects.items()}
    ratios = []
    for label, other in pairs(part, labels, subjects):
        ratio: dict[str, Any] = {"attention": label, "against": other}
        for passes in PASSES:
            ratio[passes] = compare(costs[passes][other], costs[passes][label])
        ratio["kept"] = described[label]["kept_bytes"] / described[other]["kept_bytes"]
        ratios.append(ratio)
    settings = {"part": part, "tokens": shape.tokens, "batch": shape.batch, "dim": shape.dim, "heads": shape.heads}
    return {**settings, "subjects": described, "ratios": ratios}


def pairs(part: str, labels: Iterable[str], subjects: Iterable[str]) -> list[tuple[str, str]]:
    """Which subjects are compared: each attention with other engines of its own, with softmax, and with timm's layer."""
    there = set(subjects)
    base = "dense" if part == "streams" else "softmax"
    found = []
    for label in labels:
        others = [*(f"{label}, {path}" for path in ENGINES), base]
        others += [TIMM[label]] if part == "layer" and label in TIMM else []
        found += [(label, other) for other in others if other in there and other != label]
    return found


def growth(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The power of the length that a sample's cost on projected streams grows with, measured and as the multiply-adds say."""
    points: dict[str, list[tuple[int, float, int | None]]] = {}
    for result in results:
        if result["part"] == "streams":
            for name, subject in result["subjects"].items():
                point = result["tokens"], subject["forward"]["ms"] / result["batch"], subject["multiply_adds"]
                points.setdefault(name, []).append(point)
    slopes = []
    for name, series in points.items():
        if len({tokens for tokens, *_ in series}) > 1:
            counted = [(tokens, count) for tokens, _, count in series if count]
            measured = slope([(tokens, ms) for tokens, ms, _ in series])
            slopes.append({"attention": name, "measured": measured, "theory": slope(counted) if len(counted) > 1 else None})
    return slopes


def slope(points: Sequence[tuple[int, float]]) -> float:
    """The power p of y ~ x^p, by least squares of the logarithms."""
    x, y = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    below = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / below


def _table(result: dict[str, Any]) -> Table:
    """One group: times of a call, kept memory, and how many times as fast as each other subject, with how much it keeps."""
    shape = f"{result['tokens']} tokens, batch {result['batch']}, width {result['dim']}, {result['heads']} heads"
    table = Table(f"{result['part']}, {shape}")
    subjects = result["subjects"]
    table.add("attention", list(subjects))
    for passes in PASSES:
        table.add(f"{passes} ms", [f"{subject[passes]['ms']:.3g}" for subject in subjects.values()])
    table.add("samples/s", [f"{subject['step']['samples_per_second']:.3g}" for subject in subjects.values()])
    table.add("kept MiB", [f"{subject['kept_bytes'] / 2**20:.1f}" for subject in subjects.values()])
    if all("peak_bytes" in subject for subject in subjects.values()):
        table.add("peak MiB", [f"{subject['peak_bytes'] / 2**20:.1f}" for subject in subjects.values()])
    counts = [subject["multiply_adds"] for subject in subjects.values()]
    table.add("G multiply-adds", [f"{count / 1e9:.3f}" if count else "-" for count in counts])
    for ratio in result["ratios"]:
        both = ", ".join(f"{passes} {_ratio(ratio[passes])}" for passes in PASSES)
        table.notes.append(f"{ratio['attention']} against {ratio['against']}: {both}, kept {ratio['kept']:.2f}")
    return table


def _ratio(found: dict[str, Any]) -> str:
    low, high = found["quartiles"]
    return f"{found['ratio']:.2f}x ({low:.2f} to {high:.2f}; CPU time {found['cpu_ratio']:.2f}x)"


def _slope_table(slopes: list[dict[str, Any]]) -> Table:
    table = Table("cost of a forward pass on projected streams ~ tokens ^ p")
    table.add("attention", [row["attention"] for row in slopes])
    table.add("p measured", [f"{row['measured']:.2f}" for row in slopes])
    table.add("p of multiply-adds", ["-" if row["theory"] is None else f"{row['theory']:.2f}" for row in slopes])
    return table
