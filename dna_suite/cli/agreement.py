"""Whether a recipe agrees with the run or checkpoint that it is used with; a checkpoint never changes what is being run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dna_suite.cli.recipe import Recipe, lookup
from dna_suite.errors import DnaError
from dna_suite.runs.folder import changed_from
from dna_suite.spec import AttentionSpec

IMAGE_MODEL = (
    "model.backbone",
    "model.size",
    "model.attention",
    "model.patch",
    "model.dim",
    "model.depth",
    "model.heads",
    "model.class_token_position",
    "data.size",
)

# Keys that decide what function the network computes, by task.
FUNCTION_KEYS: dict[str, tuple[str, ...]] = {
    "classification": IMAGE_MODEL,
    "transfer": IMAGE_MODEL,
    "robustness": IMAGE_MODEL,
}

# Keys of the network that matter in training alone: a run may start from one that has them otherwise.
TRAINING_KEYS = ("model.drop_path", "model.drop_path_shape")

# The tasks whose runs a recipe may start from through its key `pretrained`.
SOURCE_TASKS: dict[str, tuple[str, ...]] = {
    "classification": ("classification", "transfer"),
    "transfer": ("classification", "transfer"),
    "robustness": ("classification", "transfer"),
}

# Keys of the network that a run may have otherwise than the one it starts from: position tables are resized.
RESIZED = ("data.size",)

# Keys that may differ when a run goes on: where data lies, how fast it comes, how it is shown.
FREE_KEYS = (
    "data.root",
    "data.workers",
    "data.eval_batch",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
    "trainer.callbacks",
    "trainer.log_every_n_steps",
    "trainer.limit_val_batches",
    "trainer.limit_test_batches",
    "trainer.limit_predict_batches",
    "trainer.profiler",
    "trainer.num_sanity_val_steps",
    "trainer.detect_anomaly",
    "trainer.inference_mode",
    "trainer.enable_autolog_hparams",
    "trainer.model_registry",
    "trainer.logger",
    "trainer.plugins",
    "trainer.use_distributed_sampler",
    "model.compile",
    "model.channels_last",
)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and plain values of nested mappings."""
    for key, value in values.items():
        dotted = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            yield from flatten(value, dotted)
        else:
            yield dotted, value


def optimisation_of(values: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Every key of a complete configuration that decides how training goes, flat, the seed among them."""
    flat = {key: value for key, value in flatten(values) if not key.startswith(FREE_KEYS)}
    return {"seed": seed, **flat}


def require_same_optimisation(stored: Mapping[str, Any], wanted: Mapping[str, Any], run: str) -> None:
    """Refuse to let a run go on under another configuration.

    Raises:
        DnaError: one line per difference.
    """
    missing = object()
    lines = []
    for key in dict.fromkeys([*stored, *wanted]):
        ours, theirs = wanted.get(key, missing), stored.get(key, missing)
        if ours != theirs:
            shown = ["not set" if value is missing else repr(value) for value in (theirs, ours)]
            lines.append(f"{key}: checkpoint {shown[0]}, config {shown[1]}")
    if lines:
        hint = f"--resume goes on with {run} as it was; another configuration is a new run: --init_from {run}"
        raise DnaError("\n".join([*lines, hint]))


def take_model(recipe: Recipe, source: Recipe, run: str) -> None:
    """Let every key that describes the model come from a run's own recipe.

    Args:
        recipe: the recipe to change; its files' values give way, with a note.
        source: the run's recipe.
        run: the run folder, for messages.

    Raises:
        DnaError: a key that was typed on the command line differs; one line per difference.
    """
    typed: list[str] = []
    notes: list[str] = []
    for key in (*FUNCTION_KEYS[source.values["task"]], *TRAINING_KEYS):
        theirs = lookup(source.values, key)
        for inner, given in _leaves(recipe, key):
            wanted = lookup(source.values, inner)
            if _same(inner, given, wanted):
                continue
            line = f"{inner}: {run} {_shown(wanted)}, config {_shown(given)}"
            (typed if inner in recipe.typed else notes).append(line)
        _assign(recipe, key, theirs)
    if typed:
        raise DnaError("\n".join([*typed, f"--run {run} takes the model from that run: leave these keys out"]))
    recipe.notes.extend(f"model from the run: {line}" for line in notes)


def require_same_start(recipe: Recipe, source: Recipe, run: str, ways_on: str) -> None:
    """Refuse to start from a run whose network is not the recipe's: its attention, its backbone, a part that no task shares.

    Args:
        recipe: the recipe that starts.
        source: the recipe of the run that it starts from.
        run: the run folder, for messages.
        ways_on: what the user can do instead.

    Raises:
        DnaError: one line per difference, then the ways on.
    """
    task, other = recipe.values["task"], source.values["task"]
    if other not in SOURCE_TASKS[task]:
        raise DnaError(f"{run} is of task {other}; task {task} starts from {' or '.join(SOURCE_TASKS[task])}: {ways_on}")
    lines = []
    if source.get("data.toy") and not recipe.get("data.toy"):
        lines.append(f"data.toy: {run} was trained on toy data")
    ours, theirs = (AttentionSpec(**(values.get("model.attention") or {})) for values in (recipe, source))
    if ours.label != theirs.label or changed_from(ours, theirs):
        lines.append(f"model.attention: {run} {theirs.plain()}, config {ours.plain()}")
    for key in FUNCTION_KEYS[task]:
        if key in (*RESIZED, "model.attention") or key not in FUNCTION_KEYS[other]:
            continue
        wanted, found = (values.get(key, DEFAULTS.get(key)) for values in (recipe, source))
        if wanted != found:
            lines.append(f"{key}: {run} {_shown(found)}, config {_shown(wanted)}")
    if lines:
        raise DnaError("\n".join([*lines, f"{run} is no start for this network: {ways_on}"]))


def inherit_normalisation(recipe: Recipe, keys: Iterable[str], transform: Mapping[str, Any]) -> str | None:
    """Let mean and deviation of the pictures come with the weights where the recipe says nothing of them.

    Args:
        recipe: the recipe to change.
        keys: the keys that its data set has.
        transform: the evaluation transform that the weights were trained under.

    Returns:
        A line that says so, or None where nothing was taken.

    Source: with another mean and deviation weights are worse, and nothing says why (hila-chefer/Transformer-Explainability#73).
    """
    taken = [key for key in ("mean", "std") if key in keys and key in transform and recipe.get(f"data.{key}") is None]
    recipe.values["data"].update({key: list(transform[key]) for key in taken})
    return f"{', '.join(f'{key} {transform[key]}' for key in taken)} come with the weights" if taken else None


def _leaves(recipe: Recipe, key: str) -> list[tuple[str, Any]]:
    value = lookup(recipe.values, key)
    if isinstance(value, dict):
        return [(dotted, inner) for dotted, inner in flatten(value, key) if inner not in ({}, None)]
    return [] if value is None else [(key, value)]


DEFAULTS = {
    "model.attention.name": "softmax",
    "model.attention.layers": "all",
    "model.size": "paper",
    "model.class_token_position": True,
}


def _same(key: str, given: Any, wanted: Any) -> bool:
    return given == (DEFAULTS.get(key) if wanted is None else wanted)


def _shown(value: Any) -> str:
    return "its default" if value is None else repr(value)


def _assign(recipe: Recipe, key: str, value: Any) -> None:
    *sections, last = key.split(".")
    here = recipe.values
    for section in sections:
        here = here.setdefault(section, {})
    if value is None:
        here.pop(last, None)
    else:
        here[last] = value


def require_same_network(stored: Mapping[str, Any], wanted: Mapping[str, Any], checkpoint: str) -> None:
    """Refuse a checkpoint whose attention or backbone is not the configured one.

    Args:
        stored: what the checkpoint says about itself.
        wanted: what the task says.
        checkpoint: the file, for messages.

    Raises:
        DnaError: one line per difference.
    """
    parts = ("attention", "backbone")
    ours, theirs = ({part: values[part] for part in parts if part in values} for values in (wanted, stored))
    flat, other = dict(flatten(ours)), dict(flatten(theirs))
    lines = [
        f"{key}: {checkpoint} {other.get(key)!r}, config {flat.get(key)!r}"
        for key in dict.fromkeys([*other, *flat])
        if other.get(key) != flat.get(key)
    ]
    if lines:
        raise DnaError("\n".join(lines))


def require_same_classes(stored: list[str], found: list[str], checkpoint: str) -> None:
    """Refuse data whose class list is not the checkpoint's.

    Raises:
        DnaError: with both counts and the first class that differs.
    """
    if stored == found:
        return
    different = next((pair for pair in zip(stored, found, strict=False) if pair[0] != pair[1]), None)
    first = f"; the first that differs: {different[0]!r} there, {different[1]!r} here" if different else ""
    raise DnaError(f"classes: {checkpoint} has {len(stored)}, the data set {len(found)}{first}")


def other_normalisation(stored: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """A line about pictures that are normalised otherwise than the weights were trained with, or None."""
    different = [
        f"{key} {stored[key]} there, {found[key]} here"
        for key in ("mean", "std")
        if key in stored and key in found and stored[key] != found[key]
    ]
    return f"normalisation is not that of the weights: {'; '.join(different)}" if different else None
