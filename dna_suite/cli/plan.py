"""`dna plan`: the commands of a grid of recipes, attentions and seeds, one a line, for any scheduler to run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.cli.agreement import FUNCTION_KEYS, RESIZED
from dna_suite.cli.argv import Parser, split_training
from dna_suite.cli.checks import check_recipe, require_training
from dna_suite.cli.recipe import Recipe, merge_recipe
from dna_suite.cli.shipped import find_recipe
from dna_suite.cli.start import source_folder, take_start
from dna_suite.cli.train import folder_of
from dna_suite.errors import DnaError, UnknownName
from dna_suite.runs.folder import RunFolder
from dna_suite.runs.record import read_result

ENDED = ("tested", "finished")
SUMMARY = "one command per cell of recipes x attentions x seeds"


@dataclass(frozen=True)
class Cell:
    """One run of the grid.

    Args:
        words: what follows `dna fit`.
        folder: where the run writes.
        source: the run that it starts from, by the key `pretrained`.
        asked: it is a cell of the grid, not only the source of one.
        needs: a run that it starts from and that no recipe here makes.
    """

    words: tuple[str, ...]
    folder: RunFolder
    source: Cell | None = None
    asked: bool = True
    needs: RunFolder | None = None

    @property
    def state(self) -> str:
        """As `state_of` its folder."""
        return state_of(self.folder)


def state_of(folder: RunFolder) -> str:
    """ "tested", "finished", "started" or "new", by what a run folder holds."""
    if not folder.result.is_file():
        return "started" if folder.exists() else "new"
    result = read_result(folder.result)
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
    recipes = [file for file in given.config if _says(file, "task")]
    if not recipes:
        raise DnaError(f"{', '.join(given.config)}: no file says which task; a recipe such as tasks/digits.yaml is needed")
    overlays = [f"--config={file}" for file in given.config if file not in recipes]
    shared = [*overlays, *([f"--runs={given.runs}"] if given.runs else []), *overrides]
    print("\n".join(lines(order(cells(recipes, shared, given.attention, given.seeds)), test=given.test)))
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
                yield plan_cell(recipe, [*shared, *variant, *repeat])


def plan_cell(file: str, words: Sequence[str], *, asked: bool = True) -> Cell:
    """A run of a recipe file, and the run that it starts from.

    Args:
        file: the recipe file.
        words: what stands beside it on the command line.
        asked: it is a cell of the grid.

    Raises:
        DnaError: the recipe that they describe is not valid.
    """
    everything = (f"--config={file}", *words)
    recipe = planned_recipe(everything)
    if not recipe.get("pretrained"):
        return Cell(everything, folder_of(recipe), asked=asked)
    source = plan_source(file, words, recipe)
    return Cell(everything, folder_of(recipe), source, asked, needs=None if source else source_folder(recipe))


def plan_source(file: str, words: Sequence[str], recipe: Recipe) -> Cell | None:
    """The run that a recipe starts from, where there is a recipe file for it beside the given one.

    It gets the same overlays, seed, attention and shape of the network; what else was typed belongs to the given recipe.
    """
    beside = str(Path(file).with_name(f"{recipe.values['pretrained']}.yaml"))
    try:
        find_recipe(beside)
    except DnaError:
        return None
    typed = split_training("fit", list(words))
    keys = tuple(key for key in FUNCTION_KEYS[recipe.values["task"]] if key not in RESIZED)
    kept = [(key, text) for key, text in typed.overrides if key in ("seed", "runs") or key.startswith(keys)]
    shared = [*(f"--config={overlay}" for overlay in typed.configs), *(f"--{key}={text}" for key, text in kept)]
    if planned_recipe([f"--config={beside}"]).get("pretrained") is None:
        # An overlay may say what the given recipe starts from.
        shared += ["--from_scratch"] * any(_says(overlay, "pretrained") for overlay in typed.configs)
    return plan_cell(beside, shared, asked=False)


def planned_recipe(words: Sequence[str]) -> Recipe:
    """The recipe that `dna fit` with these words would run.

    Raises:
        DnaError: it is not valid.
    """
    arguments = split_training("fit", list(words))
    recipe = merge_recipe(arguments)
    take_start(recipe, arguments)
    require_training(recipe, check_recipe(recipe, [])[0])
    return recipe


def order(grid: Iterable[Cell]) -> list[Cell]:
    """The cells, each once, behind the runs that they start from; those join where they have not ended yet."""
    asked = {cell.folder.path: cell for cell in grid}
    ordered: dict[Path, Cell] = {}

    def add(cell: Cell) -> None:
        source = cell.source and asked.get(cell.source.folder.path, cell.source)
        if source is not None and (source.asked or source.state not in ENDED):
            add(source)
        ordered.setdefault(cell.folder.path, cell)

    for cell in asked.values():
        add(cell)
    return list(ordered.values())


def lines(grid: Sequence[Cell], *, test: bool) -> list[str]:
    """A comment that counts, then one shell command for each run that is still to do.

    Args:
        grid: the runs.
        test: add the command that tests a run; a run counts as done when it is tested.
    """
    states = [cell.state for cell in grid]
    commands: list[str] = []
    for cell, state in zip(grid, states, strict=True):
        if state != "tested" and (state != "finished" or (test and cell.asked)):
            commands.append(_command(cell, state, test and cell.asked))
    started, sources = states.count("started"), sum(not cell.asked for cell in grid)
    notes = f"{len(grid) - len(commands)} finished and left out"
    notes += f", {started} started: --resume goes on with them" if started else ""
    notes += f"; {sources} that others start from come{'s' if sources == 1 else ''} first" if sources else ""
    needed = sorted({str(cell.needs.path) for cell in grid if cell.needs and state_of(cell.needs) not in ENDED})
    missing = [f"# first of all {path}, for which there is no recipe here" for path in needed]
    return [f"# {len(grid)} run{'s' if len(grid) != 1 else ''}: {len(commands)} to do, {notes}", *missing, *commands]


def _command(cell: Cell, state: str, test: bool) -> str:
    steps = []
    if state != "finished":
        steps.append(shlex.join(["dna", "fit", *cell.words, *(["--resume"] if state == "started" else [])]))
    if test:
        steps.append(shlex.join(["dna", "test", f"--run={cell.folder.path}"]))
    return " && ".join(steps)


def _says(file: str, key: str) -> bool:
    """Whether a file, or one below it, has a top-level key; `task` tells a recipe from a fragment that goes on top of recipes."""
    return key in merge_recipe(split_training("fit", [f"--config={file}"])).values


def _attention_words(name: str) -> list[str]:
    """The overrides that choose an operator, and a pattern where "+pattern" follows."""
    operator, plus, pattern = name.partition("+")
    if operator not in OPERATORS:
        raise UnknownName("attention", operator, OPERATORS, "--attention")
    if plus and pattern not in PATTERNS:
        raise UnknownName("pattern", pattern, PATTERNS, "--attention")
    return [f"--model.attention.name={operator}", *([f"--model.attention.pattern={pattern}"] if plus else [])]
