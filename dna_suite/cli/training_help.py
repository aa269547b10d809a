"""The help of the training commands: flags, and the keys of the recipe's task and data set, read from their sources."""

from __future__ import annotations

import dataclasses
import inspect

from dna_suite.catalogue import DATASETS, TASKS, Target
from dna_suite.cli.argv import FLAGS, SWITCHES, TrainingArguments
from dna_suite.cli.keys import REFUSED_TRAINER_KEYS, SPECS, TRAINER, argument_texts, documented, keys_of
from dna_suite.cli.recipe import merge_recipe
from dna_suite.errors import DnaError

EXAMPLES = {
    "fit": "dna fit --config tasks/digits.yaml --model.attention.name=dna --seed 1",
    "validate": "dna validate --run runs/digits/dna/seed0",
    "test": "dna test --run runs/digits/dna/seed0",
    "predict": "dna predict --run runs/digits/dna/seed0 --input pictures/ --out predictions/",
}

TOP_LEVEL_TEXTS = {
    "task": "the kind of experiment; the first key of a recipe",
    "base": "files that are read before this one",
    "--pretrained": "recipe whose run with the same attention and seed this one starts from [null]",
    "--runs": "folder that holds all runs [runs]",
    "--recipe": "name of the run's folder [the first file's name]",
    "--logger": "tensorboard, wandb or mlflow, offline; metrics.csv is always written [null]",
    "--save_every": "optimiser steps between checkpoints inside an epoch; null is at its end only [null]",
    "--requeue": "signal that SLURM sends before the time limit, such as USR1: save, requeue, end [null]",
}


def help_text(command: str, arguments: TrainingArguments) -> str:
    """The text of `dna fit --help`; with `--config` it shows that recipe's task and data set.

    Args:
        command: fit, validate, test or predict.
        arguments: the command line, of which the recipe files count.

    Raises:
        DnaError: a recipe file cannot be read.
    """
    task, data = "classification", "digits"
    if arguments.configs:
        recipe = merge_recipe(arguments)
        task = recipe.get("task", task)
        data = recipe.get("data.name", data)
    if task not in TASKS or data not in DATASETS[task]:
        raise DnaError(f"no help for task {task!r} with data set {data!r}")
    lines = [f"usage: dna {command} [options] [--section.key=value ...]", "", f"  {EXAMPLES[command]}", "", "options:"]
    for flag, (name, commands, summary) in FLAGS.items():
        if command in commands:
            shown = flag if name in SWITCHES else f"{flag} VALUE"
            lines.append(f"  {shown:<22} {summary}")
    lines += ["", "top-level keys:", *(f"  {key:<22} {text}" for key, text in TOP_LEVEL_TEXTS.items())]
    lines += ["", f"model keys (task {task}):", *section("model", TASKS[task])]
    lines += ["", f"data keys (data set {data}; others: {', '.join(DATASETS[task])}):", *section("data", DATASETS[task][data])]
    trainer = ", ".join(key for key in keys_of(TRAINER) if key not in REFUSED_TRAINER_KEYS)
    return "\n".join([*lines, "", f"trainer keys (of Lightning's Trainer): {trainer}"])


def section(name: str, target: Target) -> list[str]:
    """One line per key of a class: dotted name, default, meaning."""
    lines = []
    texts = documented(target)
    for key, entry in keys_of(target).items():
        if entry.fields:
            lines += spec_lines(f"{name}.{key}", entry.annotation)
            continue
        default = "required" if entry.default is None else entry.default
        lines.append(f"  --{name}.{key:<26} {texts.get(key, '')} [{default}]")
    return lines


def spec_lines(prefix: str, spec_name: str) -> list[str]:
    """One line per field of a spec."""
    cls = SPECS[spec_name]
    texts = argument_texts(inspect.getdoc(cls) or "")
    lines = []
    for field in dataclasses.fields(cls):
        default = "{}" if field.default is dataclasses.MISSING else field.default
        dotted = f"--{prefix}.{field.name}"
        lines.append(f"  {dotted:<34} {texts.get(field.name, '')} [{default}]")
    return lines
