"""`dna plan`: the commands of a grid of recipes, attentions and seeds, one a line, for any scheduler to run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.cli.argv import Parser, split_training
from dna_suite.cli.checks import check_recipe
from dna_suite.cli.recipe import merge_recipe
from dna_suite.cli.train import folder_of
from dna_suite.errors import DnaError, UnknownName
from dna_suite.runs.folder import RunFolder
from dna_suite.runs.record import read_result

SUMMARY = "one command per cell of recipes x attentions x seeds"


@dataclass(frozen=True)
class Cell:
    """One run of the grid.

    Args:
        words: what follows `dna fit`.
        folder: where the run writes.
    """

    words: tuple[str, ...]
    folder: RunFolder

    @property
    def state(self) -> str:
        """ "tested", "finished", "started" or "new", by what the run folder holds."""
        if not self.folder.result.is_file():
            return "started" if self.folder.exists() else "new"
        result = read_result(self.folder.result)
        if not (result["training"] or {}).get("finished"):
            return "started"
        return "tested" if any(name.startswith("test/") for name in result["metrics"]) else "finished"


def run(arguments: list[str]) -> int:
    """Print the commands of a grid; finished runs are left out and counted.

    Raises:
        DnaError: an option, a recipe, an attention or a key is wrong.
    """
    parser = Parser("dna plan", SUMMARY)
    parser.add_argument("--config", action="append", required=True, metavar="FILE", help="recipe; repeat it")
    parser.add_argument(
        "--overlay", action="append", default=[], metavar="FILE", help="fragment on top of every recipe; repeat it"
    )
    parser.add_argument(
        "--attention",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME",
        help="operator, or operator+pattern; the recipe's own unless told",
    )
    parser.add_argument(
        "--seeds", action="extend", nargs="+", type=int, default=[], metavar="N", help="the recipe's own unless told"
    )
    parser.add_argument("--runs", metavar="DIR", help="folder of all runs, as in fit")
    parser.add_argument("--test", action="store_true", help="test each run as soon as it is trained")
    given, overrides = parser.parse_known_args(arguments)
    wrong = [word for word in overrides if word.startswith("--") and "." not in word]
    if wrong:
        parser.error(f"unrecognized arguments: {wrong[0]}")
    recipes = [file for file in given.config if _says_task(file)]
    if not recipes:
        raise DnaError(f"{', '.join(given.config)}: no file says which task; a recipe such as tasks/digits.yaml is needed")
    overlays = [f"--config={file}" for file in given.config if file not in recipes]
    shared = [*overlays, *([f"--runs={given.runs}"] if given.runs else []), *overrides]
    print("\n".join(lines(list(cells(recipes, shared, given.attention, given.seeds)), test=given.test)))
    return 0


def cells(recipes: Sequence[str], shared: Sequence[str], attentions: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """The runs of a grid, recipe by recipe, then attention by attention.

    Args:
        recipes: recipe files.
        shared: words that every command gets: overlays, overrides.
        attentions: operator names, with +pattern where there is one; empty takes each recipe's own.
        seeds: empty takes each recipe's own.

    Raises:
        DnaError: a recipe with these words is not valid.
    """
    variants = [_attention_words(name) for name in attentions] or [[]]
    repeats = [[f"--seed={seed}"] for seed in seeds] or [[]]
    for recipe in recipes:
        for variant in variants:
            for repeat in repeats:
                words = (f"--config={recipe}", *shared, *variant, *repeat)
                yield Cell(words, planned_folder(words))


def planned_folder(words: Sequence[str]) -> RunFolder:
    """The folder that `dna fit` with these words would write to.

    Raises:
        DnaError: the recipe that they describe is not valid.
    """
    recipe = merge_recipe(split_training("fit", list(words)))
    check_recipe(recipe, [])
    return folder_of(recipe)


def lines(grid: Sequence[Cell], *, test: bool) -> list[str]:
    """A comment that counts, then one shell command for each run that is still to do.

    Args:
        grid: the runs.
        test: add the command that tests a run; a run counts as done when it is tested.
    """
    states = [cell.state for cell in grid]
    done = {"tested"} if test else {"tested", "finished"}
    finished = sum(state in done for state in states)
    started = states.count("started")
    notes = f"{finished} finished and left out" + (f", {started} started: --resume goes on with them" if started else "")
    commands = [_command(cell, state, test) for cell, state in zip(grid, states, strict=True) if state not in done]
    return [f"# {len(grid)} run{'s' if len(grid) != 1 else ''}: {len(commands)} to do, {notes}", *commands]


def _command(cell: Cell, state: str, test: bool) -> str:
    steps = []
    if state != "finished":
        steps.append(shlex.join(["dna", "fit", *cell.words, *(["--resume"] if state == "started" else [])]))
    if test:
        steps.append(shlex.join(["dna", "test", f"--run={cell.folder.path}"]))
    return " && ".join(steps)


def _says_task(file: str) -> bool:
    """True for a recipe, False for a fragment that goes on top of recipes."""
    return "task" in merge_recipe(split_training("fit", [f"--config={file}"])).values


def _attention_words(name: str) -> list[str]:
    """The overrides that choose an operator, and a pattern where "+pattern" follows."""
    operator, plus, pattern = name.partition("+")
    if operator not in OPERATORS:
        raise UnknownName("attention", operator, OPERATORS, "--attention")
    if plus and pattern not in PATTERNS:
        raise UnknownName("pattern", pattern, PATTERNS, "--attention")
    return [f"--model.attention.name={operator}", *([f"--model.attention.pattern={pattern}"] if plus else [])]
