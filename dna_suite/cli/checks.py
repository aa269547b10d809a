"""What can be known to be wrong in a recipe before torch is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dna_suite.attention.options import check_attention
from dna_suite.catalogue import BACKBONES, DATASETS, TASKS, Target
from dna_suite.cli.keys import TRAINER, check_keys, keys_of
from dna_suite.cli.recipe import SECTIONS, TOP_LEVEL, Recipe
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec

LOGGERS = ("tensorboard", "wandb", "mlflow")
START_TEXTS = {
    "pretrained": "the name of a recipe, such as imagenet_vit",
    "init_from": "a run folder or a file of weights",
    "init_sign": "plus or minus",
}
START_LISTS = ("init_drop", "init_allow")
TRUSTED = ("dna_suite", "lightning", "torch")


def check_recipe(recipe: Recipe, trusted: list[str]) -> tuple[Target, Target]:
    """Check names, keys, options and class paths; return the task's and the data set's class.

    Args:
        recipe: a merged recipe.
        trusted: packages named by `--trust-imports`.

    Raises:
        DnaError: something is wrong, with the file and line, or "command line".
    """
    where = recipe.origins
    for key in recipe.values:
        if key not in TOP_LEVEL:
            raise UnknownName("recipe key", key, TOP_LEVEL, where.get(key))
    task = recipe.values.get("task")
    if task is None:
        raise DnaError(f"the recipe says no task: its first key is task: {' | '.join(TASKS)}")
    if task not in TASKS:
        raise UnknownName("task", task, TASKS, where.get("task"))
    for section in SECTIONS:
        recipe.values.setdefault(section, {})
        if recipe.values[section] is None:
            recipe.values[section] = {}
    check_class_paths(recipe, trusted)
    data_class = _data_class(recipe, task)
    check_keys("model", recipe.values["model"], keys_of(TASKS[task]), where)
    check_keys("data", recipe.values["data"], keys_of(data_class), where)
    check_keys("trainer", recipe.values["trainer"], keys_of(TRAINER), where)
    _check_values(recipe)
    _check_attention(recipe)
    _check_backbone(recipe)
    return TASKS[task], data_class


def require_training(recipe: Recipe, task: Target) -> None:
    """Refuse to train a task that only tests what was trained elsewhere.

    Raises:
        DnaError: the task has no training part; the command that it has is named.
    """
    if not task.trains:
        way = f"dna test --config tasks/{recipe.name}.yaml --run RUN (or --init_from FILE)"
        raise DnaError(f"task {recipe.values['task']} trains nothing, it tests a model on other pictures: {way}")


def check_class_paths(recipe: Recipe, trusted: list[str]) -> None:
    """Refuse class paths outside the allowed packages, since naming a class imports its module.

    Raises:
        DnaError: a path begins with another package; `--trust-imports` is named.
    """
    allowed = (*TRUSTED, *trusted)
    for dotted, path in _class_paths(recipe.values, ""):
        package = path.split(".")[0]
        if package not in allowed:
            place = recipe.origin(dotted.split("[")[0]) or "recipe"
            raise DnaError(
                f"{dotted} {path!r} ({place}): class paths begin with {', '.join(TRUSTED)}; "
                f"if you trust that code, add --trust-imports {package}"
            )


def _class_paths(value: Any, dotted: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{dotted}.{key}" if dotted else str(key)
            if key == "class_path" and isinstance(inner, str) and "." in inner:
                yield dotted or key, inner
            yield from _class_paths(inner, path)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, str) and "." in item and dotted == "trainer.callbacks":
                yield f"{dotted}[{number}]", item
            yield from _class_paths(item, f"{dotted}[{number}]")


def _data_class(recipe: Recipe, task: str) -> Target:
    sets = DATASETS[task]
    data = recipe.values["data"]
    if not isinstance(data, dict):
        raise DnaError(f"data is a section of keys, not {data!r} ({recipe.origin('data')})")
    if "name" not in data:
        raise DnaError(f"data.name is missing: {', '.join(sets)}")
    if data["name"] not in sets:
        raise UnknownName("data set", data["name"], sets, recipe.origin("data.name"))
    return sets[data["name"]]


def _check_values(recipe: Recipe) -> None:
    seed = recipe.values["seed"]
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise DnaError(f"seed {seed!r} ({recipe.origin('seed')}): a whole number from 0")
    every = recipe.values["save_every"]
    if every is not None and (not isinstance(every, int) or isinstance(every, bool) or every < 1):
        raise DnaError(
            f"save_every {every!r} ({recipe.origin('save_every')}): optimiser steps from 1, or null for epoch ends only"
        )
    _check_start(recipe)
    logger = recipe.values["logger"]
    if logger is not None and logger not in LOGGERS:
        raise UnknownName("logger", logger, LOGGERS, recipe.origin("logger"))
    for name, lowest in (("max_epochs", 1), ("accumulate_grad_batches", 1)):
        value = recipe.get(f"trainer.{name}", lowest)
        if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
            raise DnaError(f"trainer.{name} {value!r} ({recipe.origin(f'trainer.{name}')}): a whole number from {lowest}")


def _check_start(recipe: Recipe) -> None:
    for key, meaning in START_TEXTS.items():
        value = recipe.values.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise DnaError(f"{key} {value!r} ({recipe.origin(key)}): {meaning}, or null")
    if recipe.get("pretrained") == recipe.name:
        raise DnaError(f"pretrained {recipe.name} ({recipe.origin('pretrained')}): a recipe does not start from its own run")
    for key in START_LISTS:
        value = recipe.values.get(key)
        if value is not None and (not isinstance(value, list) or not all(isinstance(item, str) for item in value)):
            raise DnaError(f"{key} {value!r} ({recipe.origin(key)}): a list of names")


def _check_attention(recipe: Recipe) -> None:
    attention = recipe.get("model.attention", {})
    options = attention.get("options") or {}
    if not isinstance(options, dict):
        raise DnaError(
            f"model.attention.options ({recipe.origin('model.attention.options')}): a section of keys, not {options!r}"
        )
    for key, example in (("name", "dna"), ("pattern", "fibottention"), ("layers", '"1:-1"')):
        value = attention.get(key)
        if key == "layers" and isinstance(value, int) and not isinstance(value, bool):
            attention[key] = str(value)
        elif value is not None and not isinstance(value, str):
            place = recipe.origin(f"model.attention.{key}")
            raise DnaError(f"model.attention.{key} {value!r} ({place}): a text such as {example}")
    spec = AttentionSpec(attention.get("name", "softmax"), attention.get("pattern"), options=options)
    check_attention(spec, lambda key: recipe.origin(f"model.attention.{key}"))


def _check_backbone(recipe: Recipe) -> None:
    model = recipe.values["model"]
    backbone = model.get("backbone")
    if backbone is None:
        if "backbone" not in keys_of(TASKS[recipe.values["task"]]):
            return
        raise DnaError(f"model.backbone is missing: {', '.join(BACKBONES)}")
    if backbone not in BACKBONES:
        raise UnknownName("backbone", backbone, BACKBONES, recipe.origin("model.backbone"))
    size = model.get("size", "paper")
    if size not in BACKBONES[backbone]:
        raise UnknownName(f"size of {backbone}", size, BACKBONES[backbone], recipe.origin("model.size"))
    shape = BACKBONES[backbone][size]
    dim, heads = (model.get(key) if model.get(key) is not None else getattr(shape, key) for key in ("dim", "heads"))
    whole = all(isinstance(value, int) and value > 0 for value in (dim, heads))
    if not whole or dim % heads:
        place = recipe.origin("model.heads") if "model.heads" in recipe.origins else recipe.origin("model.dim")
        raise DnaError(f"model.heads {heads} does not divide model.dim {dim}{f' ({place})' if place else ''}")
