"""`dna bench`: speed and memory as ratios taken in one run, with the machine beside them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from dna_suite.cli.argv import Parser
from dna_suite.errors import UnknownName
from dna_suite.runs.folder import write_json

SUMMARY = "measure speed and memory"

# Name -> module with `measure(rounds, threads) -> dict` of plain values, one of them "line" for the reader.
BENCHMARKS = {"loop": "dna_suite.cli.bench_loop"}


def run(arguments: list[str]) -> int:
    """Run benchmarks and print or write their numbers.

    Raises:
        DnaError: a benchmark or option is unknown.
    """
    parser = Parser("dna bench", "Measure speed and memory as ratios; never a test, since times depend on the machine.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks, all by default: {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--rounds", type=int, default=15, help="how long: the loop takes 20 steps of each side a round (default 15)"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--out", metavar="FILE", help="write the numbers as JSON")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in BENCHMARKS:
            raise UnknownName("benchmark", name, BENCHMARKS)
    for key in ("rounds", "threads"):
        if getattr(options, key) < 1:
            parser.error(f"--{key} {getattr(options, key)}: 1 or more")
    results = {}
    for name in options.names or BENCHMARKS:
        results[name] = importlib.import_module(BENCHMARKS[name]).measure(options.rounds, options.threads)
        print(f"{name}: {results[name]['line']}", flush=True)
    content = {"version": 1, "command": " ".join(["dna bench", *arguments]), **stamp(), "benchmarks": results}
    if options.out:
        write_json(Path(options.out), content)
    else:
        print(json.dumps(content, indent=1))
    return 0


def stamp() -> dict[str, object]:
    """Versions, hardware and commit of this measurement."""
    from dna_suite.runs.record import accelerator_names, environment

    return {"environment": environment(accelerator_names())}
