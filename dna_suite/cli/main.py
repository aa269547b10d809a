"""The `dna` command: picks a subcommand by name, and turns errors into one line and an exit code; imports no torch."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

from dna_suite import __version__
from dna_suite.errors import DnaError, UnknownName

COMMANDS: dict[str, tuple[str, str]] = {
    "fit": ("dna_suite.cli.train", "train a recipe, validate as it goes"),
    "validate": ("dna_suite.cli.train", "evaluate a run on the validation part"),
    "test": ("dna_suite.cli.train", "evaluate a run on the test part"),
    "predict": ("dna_suite.cli.train", "classify pictures with a run's best checkpoint"),
    "show": ("dna_suite.cli.show", "what a recipe will do: model, cost, steps, rates, groups; writes nothing"),
    "list": ("dna_suite.cli.list", "attentions, backbones, tasks, data sets, recipes"),
    "plan": ("dna_suite.cli.plan", "one command per cell of recipes x attentions x seeds"),
    "report": ("dna_suite.cli.report", "tables from the results of runs"),
    "export": ("dna_suite.cli.export", "a run's weights as safetensors, timm, ONNX or released DnA files"),
    "data": ("dna_suite.cli.data", "make a toy data set, check a real one"),
    "doctor": ("dna_suite.cli.doctor", "versions, devices, extras and what would stop a run"),
    "init": ("dna_suite.cli.init", "copy the shipped recipes for editing"),
    "check": ("dna_suite.cli.check", "every attention against float64 on this machine"),
    "bench": ("dna_suite.cli.bench", "measure speed and memory"),
    "tables": ("dna_suite.cli.tables", "write the results table of the README"),
}
TRAINING = ("fit", "validate", "test", "predict")


def usage() -> str:
    """The text of `dna --help`."""
    rows = "\n".join(f"  {name:<9} {summary}" for name, (_, summary) in COMMANDS.items())
    return (
        f"dna {__version__}: does this attention mechanism help, where, and at what cost?\n\n"
        f"usage: dna COMMAND [options]\n\n{rows}\n\n"
        "  dna COMMAND --help says more, for example:\n"
        "  dna fit --config tasks/digits.yaml --model.attention.name=dna\n"
    )


def run(arguments: list[str]) -> int:
    """Run one command line.

    Args:
        arguments: the words after `dna`.

    Returns:
        The exit code of a command that ended by itself.

    Raises:
        DnaError: the user's mistake.
    """
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(usage(), end="")
        return 0
    if arguments[0] in ("--version", "version"):
        print(f"dna_suite {__version__}")
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        raise UnknownName("command", command, COMMANDS)
    module = importlib.import_module(COMMANDS[command][0])
    return module.run_training(command, rest) if command in TRAINING else module.run(rest)


def main(arguments: list[str] | None = None) -> int:
    """The entry point: exit code 0 done, 1 a check found something, 2 the user's mistake, 128 + n stopped by signal n."""
    try:
        return run(sys.argv[1:] if arguments is None else arguments)
    except DnaError as problem:
        for line in str(problem).splitlines():
            print(f"dna: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dna: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe, such as `head`, has what it wanted; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def script() -> NoReturn:
    """What the installed `dna` runs."""
    sys.exit(main())


if __name__ == "__main__":
    script()
