"""fit, validate, test, predict: everything that can be settled without torch, then the session."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dna_suite.catalogue import Target
from dna_suite.cli.agreement import take_model
from dna_suite.cli.argv import TrainingArguments, split_training
from dna_suite.cli.checks import check_recipe, require_training
from dna_suite.cli.recipe import Recipe, lookup, merge_recipe, read_snapshot
from dna_suite.cli.start import Start, check_start, find_start, take_start
from dna_suite.cli.training_help import help_text
from dna_suite.errors import DnaError
from dna_suite.runs.folder import RunFolder, run_folder
from dna_suite.spec import AttentionSpec


@dataclass(frozen=True)
class Plan:
    """What a training command will do, settled without torch.

    Args:
        command: fit, validate, test or predict.
        words: the whole command line, for command.txt.
        arguments: the command line, split.
        recipe: the merged recipe, checked.
        task: the LightningModule's class.
        data: the data module's class.
        folder: the run folder: to write to, or whose model is used.
        start: the weights that a run starts from, or that are evaluated; None for fresh ones and for a run's own.
    """

    command: str
    words: list[str]
    arguments: TrainingArguments
    recipe: Recipe
    task: Target
    data: Target
    folder: RunFolder
    start: Start | None = None


def run_training(command: str, words: list[str]) -> int:
    """Run one of the four training commands and return its exit code.

    Raises:
        DnaError: the user's mistake, before anything is written.
    """
    arguments = split_training(command, words)
    if arguments.help:
        print(help_text(command, arguments))
        return 0
    recipe = prepare_recipe(command, arguments)
    task, data = check_recipe(recipe, arguments.trust_imports)
    if command != "test":
        require_training(recipe, task)
    if arguments.print_config:
        print(recipe.dump(), end="")
        return 0
    folder = choose_folder(command, arguments, recipe)
    start = None if arguments.run else find_start(recipe, folder if arguments.resume is not None else None)
    plan = Plan(command, ["dna", command, *words], arguments, recipe, task, data, folder, start)
    if not is_child():
        for note in recipe.notes:
            say(note)
    from dna_suite.cli.session import run_plan

    return run_plan(plan)


def say(line: str) -> None:
    """One line for the user, apart from what a command prints as its result."""
    print(f"dna: {line}", file=sys.stderr, flush=True)


def is_child() -> bool:
    """True in the processes of a run beside the first, whether Lightning, torchrun or srun started them."""
    return any(int(os.environ.get(name) or 0) > 0 for name in ("LOCAL_RANK", "NODE_RANK", "RANK", "SLURM_PROCID"))


def prepare_recipe(command: str, arguments: TrainingArguments) -> Recipe:
    """The recipe of a training command: files and overrides, or a run's own, or a run's model under other keys.

    Raises:
        DnaError: flags exclude one another, a folder is no run, or typed keys contradict the run.
    """
    check_start(arguments)
    if command == "predict":
        missing = [f"--{name}" for name in ("run", "input", "out") if getattr(arguments, name) is None]
        if missing:
            raise DnaError(f"dna predict needs {', '.join(missing)}: dna predict --run DIR --input FOLDER_OR_FILE --out DIR")
    source = arguments.run or arguments.resume
    if not source:
        if command != "fit" and not arguments.init_from:
            raise DnaError(f"dna {command} needs a model: --run DIR (a run folder) or --init_from FILE (weights)")
        recipe = merge_recipe(arguments)
        take_start(recipe, arguments)
        return recipe
    stored = read_snapshot(Path(source))
    recipe = merge_recipe(arguments, start=None if arguments.configs else stored)
    take_start(recipe, arguments)
    if arguments.run:
        take_model(recipe, stored, arguments.run)
        if "seed" not in recipe.typed:
            recipe.values["seed"] = stored.values["seed"]
    return recipe


def choose_folder(command: str, arguments: TrainingArguments, recipe: Recipe) -> RunFolder:
    """The run folder of a command; for a fit it is free, or the user said what happens to it.

    Raises:
        DnaError: the folder holds a run and neither --resume nor --overwrite was given.
    """
    if arguments.run:
        return RunFolder(Path(arguments.run))
    if arguments.resume:
        folder = RunFolder(Path(arguments.resume))
    else:
        evaluated = Path(arguments.init_from).stem if command != "fit" and arguments.init_from else None
        folder = folder_of(recipe, f"{recipe.name}-{evaluated}" if evaluated else None)
    if not is_child():
        folder.check(overwrite=arguments.overwrite, resume=arguments.resume is not None or command != "fit")
    return folder


def folder_of(recipe: Recipe, name: str | None = None) -> RunFolder:
    """Where a recipe's run goes.

    Args:
        recipe: a merged recipe.
        name: another name than the recipe's own.
    """
    attention = AttentionSpec(**lookup(recipe.values, "model.attention", {}))
    own = AttentionSpec(**recipe.own_attention)
    return RunFolder(run_folder(recipe.values["runs"], name or recipe.name, attention, recipe.values["seed"], own))
