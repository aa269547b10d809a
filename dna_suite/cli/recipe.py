"""Recipes: YAML files read through `base:`, merged left to right, changed by dotted keys of the command line."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dna_suite.cli.argv import TrainingArguments, split_training
from dna_suite.cli.shipped import find_recipe
from dna_suite.cli.yaml_text import read_document, read_value
from dna_suite.errors import DnaError

SECTIONS = ("model", "data", "trainer")
SETTINGS: dict[str, Any] = {"seed": 0, "runs": "runs", "logger": None, "save_every": None, "requeue": None}
START = ("pretrained", "init_from", "init_drop", "init_sign", "init_allow")
TOP_LEVEL = ("task", "recipe", "base", *START, *SETTINGS, *SECTIONS)


@dataclass
class Recipe:
    """A merged recipe.

    Args:
        name: what the run folder is called after: the key `recipe:`, else the stem of the first file.
        values: all keys as plain values; `base` is gone, since it is merged already.
        origins: dotted key -> "file:line" or "command line".
        typed: dotted keys that stood on the command line.
        notes: lines that the user should see: shipped files used, options dropped.
        own_attention: the attention of the recipe before the command line changed it.
    """

    name: str
    values: dict[str, Any]
    origins: dict[str, str] = field(default_factory=dict)
    typed: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    own_attention: dict[str, Any] = field(default_factory=dict)

    def origin(self, dotted: str) -> str | None:
        """Where a key, or the nearest section above it, was written."""
        while dotted:
            if dotted in self.origins:
                return self.origins[dotted]
            dotted = dotted.rpartition(".")[0]
        return None

    def get(self, dotted: str, default: Any = None) -> Any:
        """The value of a dotted key, or the default where a part of it is missing."""
        return lookup(self.values, dotted, default)

    def dump(self) -> str:
        """The recipe as YAML that `--config` reads back to the same values."""
        return yaml.safe_dump(self.ordered(), sort_keys=False, allow_unicode=True, width=120)

    def ordered(self) -> dict[str, Any]:
        """All keys in the order in which a recipe is written."""
        return {key: self.values[key] for key in TOP_LEVEL if key in self.values}


def lookup(values: dict[str, Any], dotted: str, default: Any = None) -> Any:
    """The value of a dotted key in nested mappings, or the default."""
    here: Any = values
    for part in dotted.split("."):
        if not isinstance(here, dict) or part not in here:
            return default
        here = here[part]
    return here


def read_recipe(arguments: list[str]) -> Recipe:
    """The recipe that `--config FILE` options and dotted overrides describe.

    Raises:
        DnaError: a file is missing or malformed, or no `--config` is given.
    """
    return merge_recipe(split_training("fit", arguments))


def merge_recipe(arguments: TrainingArguments, start: Recipe | None = None) -> Recipe:
    """Files and overrides of a split command line as one recipe, on top of `start` where one is given.

    Raises:
        DnaError: a file is missing or malformed, or there is neither a file nor a start.
    """
    if not arguments.configs and start is None:
        raise DnaError("no recipe given: --config tasks/digits.yaml (`dna list recipes` shows them)")
    merge = Merge(start)
    for given in arguments.configs:
        path, shipped = find_recipe(given)
        if shipped:
            merge.recipe.notes.append(f"{given}: no such file here, using the one that ships with dna_suite")
        merge.add_file(path, shown=given)
    recipe = merge.recipe
    recipe.own_attention = copy.deepcopy(recipe.get("model.attention", {}) or {})
    merge.add_overrides(arguments.overrides)
    recipe.name = str(recipe.values.get("recipe") or recipe.name)
    recipe.values = {**SETTINGS, **recipe.values, "recipe": recipe.name}
    return recipe


class Merge:
    """A merge in progress: later values win, sections merge by key, lists are replaced, `key+` appends."""

    def __init__(self, start: Recipe | None = None) -> None:
        self.recipe = copy.deepcopy(start) if start else Recipe("", {})
        self._open: list[Path] = []

    def add_file(self, path: Path, shown: str | None = None) -> None:
        """Merge the file's bases, then the file.

        Raises:
            DnaError: a base is missing, or files name one another in a circle.
        """
        resolved = path.resolve()
        if resolved in self._open:
            raise DnaError(f"{path}: base: leads back to this file: {' -> '.join(p.name for p in [*self._open, resolved])}")
        document = read_document(path)
        values = document.values
        shown = shown or str(path)
        bases = values.pop("base", None) or []
        bases = [bases] if isinstance(bases, str) else bases
        if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
            raise DnaError(f"{shown}:{document.lines['base']}: base: is a file or a list of files")
        self._open.append(resolved)
        for base in bases:
            target = path.parent / base
            if not target.is_file():
                raise DnaError(f"{shown}:{document.lines['base']}: base: {base} does not exist (looked for {target})")
            self.add_file(target)
        self._open.pop()
        if not self.recipe.name and not self._open:
            self.recipe.name = path.stem
        self._add(values, {dotted: f"{shown}:{line}" for dotted, line in document.lines.items()})

    def add_overrides(self, overrides: list[tuple[str, str]]) -> None:
        """Merge `key=text` pairs of the command line as one layer, so that their order is of no account.

        Raises:
            DnaError: one key is a section and a value at once.
        """
        layer: dict[str, Any] = {}
        for dotted, text in overrides:
            *sections, key = dotted.split(".")
            here = layer
            for section in sections:
                here = here.setdefault(section, {})
                if not isinstance(here, dict):
                    raise DnaError(f"--{dotted}: {section} was given a value on the same command line")
            here[key] = read_value(text)
            self.recipe.typed.add(dotted)
        self._add(layer, dict.fromkeys((dotted for dotted, _ in overrides), "command line"))

    def _add(self, values: dict[str, Any], origins: dict[str, str]) -> None:
        self._drop_old_attention(values)
        _merge_into(self.recipe.values, values)
        self.recipe.origins.update(origins)

    def _drop_old_attention(self, values: dict[str, Any]) -> None:
        """Options and pattern belong to the operator they were written for: a new name drops them."""
        old = self.recipe.get("model.attention")
        new = lookup(values, "model.attention")
        if not isinstance(old, dict) or not isinstance(new, dict):
            return
        if "name" not in new or new["name"] == old.get("name", "softmax"):
            return
        dropped = {key: old.pop(key) for key in ("options", "pattern") if old.get(key)}
        if dropped:
            listed = ", ".join(f"{key} {value}" for key, value in dropped.items())
            self.recipe.notes.append(f"attention {old.get('name', 'softmax')} -> {new['name']}: dropped {listed}")


def _merge_into(old: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        if key.endswith("+"):
            kept = old.get(key[:-1]) or []
            old[key[:-1]] = [*(kept if isinstance(kept, list) else [kept]), *(value if isinstance(value, list) else [value])]
        elif isinstance(value, dict) and isinstance(old.get(key), dict):
            _merge_into(old[key], value)
        else:
            old[key] = copy.deepcopy(value)


def read_snapshot(folder: Path) -> Recipe:
    """The recipe that a run folder holds.

    Raises:
        DnaError: the folder is no run folder.
    """
    path = folder / "recipe.yaml"
    if not path.is_file():
        reason = "holds no recipe.yaml" if folder.is_dir() else "does not exist"
        raise DnaError(f"{folder} is no run folder: it {reason} (runs/RECIPE/ATTENTION/seedK)")
    merge = Merge()
    merge.add_file(path)
    recipe = merge.recipe
    recipe.name = str(recipe.values.get("recipe", "")) or folder.parent.parent.name
    recipe.values = {**SETTINGS, **recipe.values, "recipe": recipe.name}
    recipe.own_attention = copy.deepcopy(recipe.get("model.attention", {}) or {})
    return recipe
