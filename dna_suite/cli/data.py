"""`dna data`: write a toy data set, or look at a real one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dna_suite.cli import data_shards
from dna_suite.cli.argv import Parser
from dna_suite.cli.checks import check_recipe
from dna_suite.cli.recipe import Recipe, read_recipe
from dna_suite.errors import DnaError, UnknownName
from dna_suite.runs.tables import Table

if TYPE_CHECKING:
    from dna_suite.data.base import Data
    from dna_suite.data.check import DataReport

SUMMARY = "make a toy data set, download or check a real one"
USAGE = f"""dna data: {SUMMARY}

  dna data toy NAME DIR                    write the toy set of a data set, in its own layout
                                           (NAME: imagenet, cifar10, cifar100, cars, tiny_imagenet, fashion_mnist, robustness)
  dna data download NAME DIR               fetch a public archive, md5 checked (NAME: cifar10, cifar100, fashion_mnist)
  dna data shards ROOT DIR                 write class folders of pictures as uncompressed tar shards (--megabytes N: of each)
  dna data check --config RECIPE           count splits and classes, read every file; exit code 1 where something is wrong
    --data.root=DIR                        any key of the recipe can be given so
"""
LISTED = 20


def run(arguments: list[str]) -> int:
    """Run one action of `dna data`.

    Returns:
        0, or 1 where a check found something.

    Raises:
        DnaError: there is no such action, or its arguments are wrong.
    """
    if not arguments or arguments[0] in ("--help", "-h"):
        print(USAGE, end="")
        return 0
    action, *rest = arguments
    actions = {"toy": make_toy, "download": fetch, "check": check, "shards": data_shards.write}
    if action not in actions:
        raise UnknownName("action of dna data", action, actions)
    return actions[action](rest)


def make_toy(arguments: list[str]) -> int:
    """Write a toy data set."""
    parser = Parser("dna data toy", "write a toy data set made from handwritten digits, in the layout of the real one")
    parser.add_argument("name", metavar="NAME", help="data set, such as imagenet")
    parser.add_argument("folder", metavar="DIR", help="new folder")
    given = parser.parse_args(arguments)
    from dna_suite.data.toy import write_toy

    folder = write_toy(given.name, given.folder)
    pictures = sum(1 for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: toy {given.name}, {pictures} files; use it with --data.root={folder}")
    return 0


def fetch(arguments: list[str]) -> int:
    """Download a public data set."""
    parser = Parser("dna data download", "fetch the public archive of a data set; nothing is downloaded at any other time")
    parser.add_argument("name", metavar="NAME", help="data set, such as cifar10")
    parser.add_argument("folder", metavar="DIR", help="folder that the files go to")
    given = parser.parse_args(arguments)
    from dna_suite.data.download import download

    download(given.name, given.folder, print)
    print(f"{given.folder}: {given.name}; use it with --data.root={given.folder}")
    return 0


def check(arguments: list[str]) -> int:
    """Print what a recipe's data holds and what is wrong with it."""
    if "--help" in arguments or "-h" in arguments:
        print(USAGE, end="")
        return 0
    data = build_data(read_recipe(arguments))
    from dna_suite.data.check import check_data

    report = check_data(data, threads=max(1, data.workers))
    print("\n".join(lines_of(report, data.name)))
    return 0 if report.sound else 1


def build_data(recipe: Recipe) -> Data:
    """The data module of a recipe.

    Raises:
        DnaError: a key is unknown or a value wrong.
    """
    _, target = check_recipe(recipe, [])
    from dna_suite.cli.lightning import RecipeParser, located
    from dna_suite.cli.quiet import quieten

    quieten()
    parser = RecipeParser(allow_abbrev=False)
    parser.add_class_arguments(getattr(importlib.import_module(target.module), target.name), "data")
    try:
        parsed = parser.parse_object({"data": recipe.values["data"]})
    except DnaError as problem:
        raise DnaError(located(str(problem), recipe)) from None
    data: Any = parser.instantiate(parsed).data
    data.seed = recipe.values["seed"]
    return data


def lines_of(report: DataReport, name: str) -> list[str]:
    """The report as text: a table of splits, the class names, then notes, unreadable files and problems."""
    lines: list[str] = []
    if report.splits:
        table = Table(f"data set {name}")
        rows = report.splits
        table.add("split", [row.split for row in rows])
        table.add("read from", [row.source for row in rows])
        table.add("samples", [str(row.samples) for row in rows])
        table.add("classes", [str(int((row.per_class > 0).sum())) for row in rows])
        table.add("per class", [f"{row.per_class.min()} to {row.per_class.max()}" for row in rows])
        table.add("unreadable", [str(len(row.unreadable)) for row in rows])
        lines += [table.text(), ""]
    if report.classes:
        more = f" and {len(report.classes) - LISTED} more" if len(report.classes) > LISTED else ""
        lines.append(f"{len(report.classes)} classes: {', '.join(report.classes[:LISTED])}{more}")
    lines += [f"note: {note}" for note in report.notes]
    faults = list(dict.fromkeys(fault for row in report.splits for fault in row.unreadable))
    lines += [f"unreadable: {fault}" for fault in faults]
    lines += [f"problem: {problem}" for problem in report.problems]
    found = len(faults) + len(report.problems)
    lines.append("everything can be read" if report.sound else f"{found} {'thing is' if found == 1 else 'things are'} wrong")
    return lines
