"""`dna bench`: speed and memory as ratios taken in one run, with the machine beside them."""

from __future__ import annotations

import argparse
import importlib
import json
import os
from pathlib import Path
from typing import Any

from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.cli.argv import Parser
from dna_suite.errors import DnaError, UnknownName
from dna_suite.runs.folder import write_json

SUMMARY = "measure speed and memory"

# Name -> module with `measure(options) -> dict` of plain values, one of them "line" for the reader.
BENCHMARKS = {
    "train": "dna_suite.cli.bench_train",
    "attention": "dna_suite.cli.bench_attention",
    "model": "dna_suite.cli.bench_model",
    "data": "dna_suite.cli.bench_data",
    "robustness": "dna_suite.cli.bench_robustness",
}
# Option -> the benchmarks that take it, and how it is read.
OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "operators": (("attention", "model"), {"nargs": "+", "metavar": "NAME", "help": "attentions, such as dna or dna+longformer"}),
    "lengths": (("attention",), {"nargs": "+", "type": int, "metavar": "N", "help": "tokens (197 785 2304)"}),
    "batch": (
        ("attention", "model", "data"),
        {"nargs": "+", "type": int, "metavar": "B", "help": "samples, one number or one for each length"},
    ),
    "dim": (("attention",), {"type": int, "metavar": "N", "help": "width (768)"}),
    "heads": (("attention",), {"type": int, "metavar": "N", "help": "heads (12)"}),
    "parts": (("attention",), {"nargs": "+", "choices": ("streams", "layer"), "help": "projected streams, whole layers; both"}),
    "engines": (
        ("attention",),
        {"nargs": "*", "choices": ("written_out", "masked", "offsets"), "help": "beside the one that is picked; all, or none"},
    ),
    "backbone": (("model",), {"metavar": "NAME", "help": "backbone (vit_base)"}),
    "size": (("model",), {"metavar": "NAME", "help": "size of the backbone (paper)"}),
    "image_size": (("model",), {"type": int, "metavar": "N", "help": "side of the pictures (224)"}),
    "dtype": (("attention", "model"), {"choices": ("float32", "bfloat16", "float16", "float64"), "help": "precision (float32)"}),
    "device": (("attention", "model"), {"metavar": "NAME", "help": "cpu or cuda (cpu)"}),
    "pictures": (("data",), {"type": int, "metavar": "N", "help": "JPEGs of a pass (256)"}),
    "plot": (("attention",), {"metavar": "FILE", "help": "draw cost against length, with the growth of the multiply-adds"}),
}


def run(arguments: list[str]) -> int:
    """Run benchmarks and print or write their numbers.

    Raises:
        DnaError: a benchmark or option is unknown, or an option belongs to another benchmark.
    """
    parser = Parser("dna bench", "Measure speed and memory as ratios; never a test, since times depend on the machine.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks, all by default: {', '.join(BENCHMARKS)}")
    parser.add_argument("--rounds", type=int, help="turns of each side (7; model 5; train 15, of 20 steps each)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (2)")
    parser.add_argument("--out", metavar="FILE", help="write the numbers as JSON")
    for name, (owners, reading) in OPTIONS.items():
        parser.add_argument(f"--{name}", **{**reading, "help": f"{', '.join(owners)}: {reading['help']}"})
    options = parser.parse_args(arguments)
    check_options(parser, options)
    results = {}
    for name in options.names or BENCHMARKS:
        results[name] = importlib.import_module(BENCHMARKS[name]).measure(options)
        print(f"{name}: {results[name]['line']}", flush=True)
    content = {"version": 1, "command": " ".join(["dna bench", *arguments]), **stamp(), "benchmarks": results}
    if options.out:
        write_json(Path(options.out), content)
    elif set(options.names) == {"train"}:
        print(json.dumps(content, indent=1))
    return 0


def check_options(parser: Parser, options: argparse.Namespace) -> None:
    """Refuse names that do not exist, numbers below 1, and options of benchmarks that do not run.

    Raises:
        DnaError: one of them was given.
    """
    for name in options.names:
        if name not in BENCHMARKS:
            raise UnknownName("benchmark", name, BENCHMARKS)
    chosen = options.names or list(BENCHMARKS)
    for name, (owners, _) in OPTIONS.items():
        if getattr(options, name) is not None and not set(owners) & set(chosen):
            raise DnaError(f"--{name} belongs to dna bench {' and '.join(owners)}, not to {', '.join(chosen)}")
    for key in ("rounds", "threads", "dim", "heads", "image_size", "pictures"):
        value = getattr(options, key)
        if value is not None and value < 1:
            parser.error(f"--{key} {value}: 1 or more")
    for label in options.operators or []:
        operator, plus, pattern = label.partition("+")
        if operator not in OPERATORS:
            raise UnknownName("attention", operator, OPERATORS, "--operators")
        if plus and pattern not in PATTERNS:
            raise UnknownName("attention pattern", pattern, PATTERNS, "--operators")


def stamp() -> dict[str, object]:
    """Versions, hardware, commit and load of this measurement."""
    from dna_suite.runs.record import accelerator_names, environment

    load = list(os.getloadavg()) if hasattr(os, "getloadavg") else None
    return {"environment": environment(accelerator_names()), "load": load}
