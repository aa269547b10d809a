"""Which keys a recipe may have, read from the classes' source text, so that a wrong key is told before torch is imported."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

from dna_suite import spec
from dna_suite.catalogue import Target
from dna_suite.errors import DnaError, UnknownName

SPECS = {cls.__name__: cls for cls in (spec.AttentionSpec, spec.OptimSpec, spec.ScheduleSpec)}
TRAINER = Target("lightning.pytorch.trainer.trainer", "Trainer")

REFUSED_TRAINER_KEYS = {
    "max_steps": "limits are in epochs (trainer.max_epochs): step limits resume wrongly",
    "min_steps": "limits are in epochs (trainer.min_epochs)",
    "max_time": "stop a run with TERM: it writes a checkpoint and --resume goes on",
    "fast_dev_run": "--config configs/smoke.yaml is the short run; it also writes its results",
    "overfit_batches": "data.subset takes a small, balanced part of train",
    "logger": "the top-level key `logger:` names one (tensorboard, wandb, mlflow); metrics.csv is always written",
    "default_root_dir": "the top-level key `runs:` says where runs go",
    "enable_checkpointing": "checkpoints are always written; trainer limits make a run short",
    "use_distributed_sampler": "the suite's own sampler serves every number of processes",
    "barebones": "`dna bench` measures; a run always keeps its record",
    "reload_dataloaders_every_n_epochs": "the order is a function of the epoch already",
    "enable_progress_bar": "the bar is quiet by itself where there is no terminal",
    "enable_model_summary": "the summary with the attention sites is always printed",
}


@dataclasses.dataclass(frozen=True)
class Key:
    """One recipe key.

    Args:
        annotation: its type as written in the source.
        default: its default as written in the source; None where there is none.
        fields: the keys below it, for a spec.
    """

    annotation: str
    default: str | None
    fields: tuple[str, ...] = ()


def check_keys(section: str, values: Any, allowed: dict[str, Key], where: dict[str, str]) -> None:
    """Refuse a key that the section does not have.

    Args:
        section: model, data or trainer.
        values: the section of a merged recipe.
        allowed: the keys of the class behind it.
        where: dotted key -> file and line.

    Raises:
        DnaError: the section is no mapping, or a key is unknown or not offered.
    """
    if not isinstance(values, dict):
        raise DnaError(f"{section} is a section of keys, not {values!r}{_at(where, section)}")
    for name, value in values.items():
        dotted = f"{section}.{name}"
        if section == "trainer" and name in REFUSED_TRAINER_KEYS:
            raise DnaError(f"{dotted} is not offered: {REFUSED_TRAINER_KEYS[name]}{_at(where, dotted)}")
        if name not in allowed:
            offered = [key for key in allowed if section != "trainer" or key not in REFUSED_TRAINER_KEYS]
            raise UnknownName("recipe key", name, offered, where.get(dotted), prefix=f"{section}.")
        fields = allowed[name].fields
        if not fields:
            continue
        if not isinstance(value, dict):
            raise DnaError(f"{dotted} is a section of keys ({', '.join(fields)}), not {value!r}{_at(where, dotted)}")
        for inner in value:
            if inner not in fields:
                raise UnknownName("recipe key", inner, fields, where.get(f"{dotted}.{inner}"), prefix=f"{dotted}.")


def _at(where: dict[str, str], dotted: str) -> str:
    return f" ({where[dotted]})" if dotted in where else ""


def keys_of(target: Target) -> dict[str, Key]:
    """The constructor arguments of a class and of the bases that it hands others on to, by reading their source."""
    keys = _keys(_source(target.module), target.name)
    assert keys is not None, f"{target} has no constructor"
    return keys


@cache
def _source(module: str) -> Path:
    """The file of a module, found without importing the packages above it (the top one is never torch)."""
    top, *rest = module.split(".")
    found = importlib.util.find_spec(top)
    if found is None or not found.submodule_search_locations:
        raise DnaError(f"{top} is not installed")
    path = Path(next(iter(found.submodule_search_locations))).joinpath(*rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _keys(path: Path, name: str) -> dict[str, Key] | None:
    tree = _tree(path)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    # Where it hands **others on, they are those of its base.
                    others = _inherited(path, node) if item.args.kwarg else None
                    own = _arguments(item)
                    return {**own, **{key: found for key, found in (others or {}).items() if key not in own}}
            return _inherited(path, node)
    module = _imported_from(tree, name)
    return _keys(_source(module), name) if module else None


def _inherited(path: Path, node: ast.ClassDef) -> dict[str, Key] | None:
    """The keys of the nearest base that has a constructor."""
    for base in node.bases:
        found = _keys(path, base.id) if isinstance(base, ast.Name) else None
        if found is not None:
            return found
    return None


def _imported_from(tree: ast.Module, name: str) -> str | None:
    """The module of ours that a name is imported from."""
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("dna_suite"):
            continue
        if any(alias.name == name for alias in node.names):
            return node.module
    return None


def _arguments(function: ast.FunctionDef) -> dict[str, Key]:
    positional, keyword = function.args.args[1:], function.args.kwonlyargs
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(function.args.defaults))
    defaults += [*function.args.defaults, *function.args.kw_defaults]
    return {argument.arg: _key(argument, default) for argument, default in zip([*positional, *keyword], defaults, strict=True)}


def _key(argument: ast.arg, default: ast.expr | None) -> Key:
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    fields = tuple(field.name for field in dataclasses.fields(SPECS[annotation])) if annotation in SPECS else ()
    return Key(annotation, None if default is None else ast.unparse(default), fields)


def documented(target: Target) -> dict[str, str]:
    """Key -> meaning, from the class's docstring and, for keys it does not mention, from those of its bases."""
    keys = keys_of(target)
    return {key: text for key, text in _documented(_source(target.module), target.name).items() if key in keys}


def argument_texts(docstring: str) -> dict[str, str]:
    """Name -> meaning of the arguments that a docstring describes; continued lines are joined."""
    _, marker, block = docstring.partition("Args:\n")
    found: dict[str, str] = {}
    name = ""
    for line in block.splitlines() if marker else []:
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            name = entry[1]
            found[name] = entry[2]
        elif line.startswith("     ") and name:
            found[name] += " " + line.strip()
        elif not line.startswith("    "):
            break
    return found


def _documented(path: Path, name: str) -> dict[str, str]:
    tree = _tree(path)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            texts: dict[str, str] = {}
            for base in node.bases:
                texts |= _documented(path, base.id) if isinstance(base, ast.Name) else {}
            return texts | argument_texts(ast.get_docstring(node) or "")
    module = _imported_from(tree, name)
    return _documented(_source(module), name) if module else {}
