"""What may import what, read from the source; and calls and file names that the project does without."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dna_suite

PACKAGE = Path(dna_suite.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# A module imports from its own row and the rows above it.
LAYERS = (
    ("errors", "spec", "entry_points", "catalogue"),
    ("attention",),
    ("data", "metrics"),
    ("backbones",),
    ("tasks",),
    ("runs", "analysis", "export"),
    ("cli",),
)
LAYER_OF = {name: number for number, row in enumerate(LAYERS) for name in row}

# Packages that cost seconds to import: `dna --help`, `list`, `plan` and `report` must not touch them.
HEAVY = {"torch", "torchvision", "lightning", "timm", "torchmetrics", "jsonargparse", "numpy", "PIL", "safetensors"}
LIGHT = (
    "__init__.py",
    "errors.py",
    "spec.py",
    "entry_points.py",
    "catalogue.py",
    "runs/__init__.py",
    "runs/folder.py",
    "runs/record.py",
    "runs/report.py",
    "runs/tables.py",
    "cli/__init__.py",
    "cli/main.py",
    "cli/argv.py",
    "cli/recipe.py",
    "cli/yaml_text.py",
    "cli/keys.py",
    "cli/checks.py",
    "cli/agreement.py",
    "cli/start.py",
    "cli/train.py",
    "cli/shipped.py",
    "cli/list.py",
    "cli/plan.py",
    "cli/report.py",
    "cli/tables.py",
    "cli/init.py",
    "cli/doctor.py",
    "cli/export.py",
    "cli/packages.py",
)

# Lightning's ways to put objects into checkpoints, and torch's way to let them out again.
FORBIDDEN = {"load_from_checkpoint", "save_hyperparameters", "add_safe_globals"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(nodes: Iterator[ast.AST]) -> Iterator[tuple[str, int]]:
    """Dotted name and line of every import; `from package import name` counts as package.name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "the project imports by full names"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: all but bodies of functions and what is for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from at_import(child)


def layer(dotted: str) -> int | None:
    """The row of a module of ours; None for the package itself."""
    parts = dotted.split(".")
    return LAYER_OF[parts[1]] if len(parts) > 1 and parts[1] in LAYER_OF else None


def test_every_part_has_a_layer() -> None:
    parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES} - {"__init__"}
    assert parts <= LAYER_OF.keys()
    assert len(FILES) > 20


def test_modules_import_from_their_own_layer_or_above() -> None:
    wrong = []
    for path in FILES:
        own = LAYER_OF.get(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), 0)
        for name, line in imported(ast.walk(tree(path))):
            theirs = layer(name) if name.split(".")[0] == "dna_suite" else None
            if theirs is not None and theirs > own:
                wrong.append(f"{path.relative_to(PACKAGE)}:{line} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("name", LIGHT)
def test_what_starts_fast_imports_nothing_heavy(name: str) -> None:
    wrong = [
        f"{name}:{line} {module}" for module, line in imported(at_import(tree(PACKAGE / name))) if module.split(".")[0] in HEAVY
    ]
    assert wrong == []


def test_fast_commands_leave_heavy_packages_unloaded() -> None:
    # What the source cannot show: a light module that imports a heavy one of ours. One process answers for all of them.
    modules = ["dna_suite." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in LIGHT[1:]]
    code = f"import sys, {', '.join(modules)}; print(sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_puts_objects_into_checkpoints() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.attr if isinstance(node, ast.Attribute) else node.id}"
        for path in FILES
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Attribute) and node.attr in FORBIDDEN) or (isinstance(node, ast.Name) and node.id in FORBIDDEN)
    ]
    assert wrong == []


def test_file_names_say_what_is_inside() -> None:
    nameless = {"util", "utils", "helper", "helpers", "common", "misc"}
    assert [str(path) for path in FILES if path.stem in nameless or path.parent.name in nameless] == []
