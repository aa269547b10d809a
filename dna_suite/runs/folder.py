"""Run folders: where a run writes, what may be replaced, and files that are whole or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna_suite import __version__
from dna_suite.catalogue import OPERATORS
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec


def run_folder(
    runs_root: str | Path,
    recipe_name: str,
    attention: AttentionSpec,
    seed: int,
    recipe_attention: AttentionSpec | None = None,
) -> Path:
    """The folder of a run: ROOT/RECIPE/LABEL[-HASH]/seedK.

    Args:
        runs_root: the folder that holds all runs.
        recipe_name: name of the recipe file without its ending.
        attention: what the run trains.
        seed: the run's seed.
        recipe_attention: what the recipe itself says; None stands for a recipe that says nothing. The hash covers what
            differs from it besides the name (layers, options), and is left out where nothing does.

    Raises:
        DnaError: the recipe name cannot be the name of one folder.
    """
    if not recipe_name or recipe_name.startswith(".") or "/" in recipe_name or os.sep in recipe_name:
        raise DnaError(f"recipe name {recipe_name!r}: a file name without folders, such as digits")
    changed = changed_from(attention, recipe_attention or AttentionSpec())
    digest = hashlib.sha256(json.dumps(changed, sort_keys=True, default=str).encode()).hexdigest()[:6]
    label = f"{attention.label}-{digest}" if changed else attention.label
    return Path(runs_root) / recipe_name / label / f"seed{seed}"


def changed_from(attention: AttentionSpec, recipe: AttentionSpec) -> dict[str, Any]:
    """What differs from the recipe's attention besides name and pattern; options count with their defaults filled in.

    A change of name or pattern drops the recipe's options, so the comparison is then with the defaults.
    """
    changed: dict[str, Any] = {}
    if attention.layers.replace(" ", "") != recipe.layers.replace(" ", ""):
        changed["layers"] = attention.layers.replace(" ", "")
    defaults = dict(OPERATORS[attention.name].options) if attention.name in OPERATORS else {}
    theirs = defaults | (recipe.options if recipe.label == attention.label else {})
    ours = defaults | attention.options
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            changed[f"options.{name}"] = ours.get(name)
    return changed


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all: a part file beside it, flushed to the disk, then renamed over it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all, indented, keys in the order given."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@dataclass(frozen=True)
class RunFolder:
    """One run's folder: its paths, and the rules for starting, resuming and replacing a run.

    Args:
        path: the folder; it need not exist yet.
    """

    path: Path

    @property
    def recipe(self) -> Path:
        """The merged recipe; the file that makes a folder a run folder."""
        return self.path / "recipe.yaml"

    @property
    def command(self) -> Path:
        """The command lines that wrote here, one a line."""
        return self.path / "command.txt"

    @property
    def environment(self) -> Path:
        """Versions, hardware and settings of the process that wrote here last."""
        return self.path / "env.json"

    @property
    def start(self) -> Path:
        """Where the run's first weights came from, and what became of each tensor; not there for fresh ones."""
        return self.path / "init_from.json"

    @property
    def metrics(self) -> Path:
        """The log: one row for each written step or epoch."""
        return self.path / "metrics.csv"

    @property
    def result(self) -> Path:
        """The record that tables are made of."""
        return self.path / "result.json"

    @property
    def checkpoints(self) -> Path:
        """Folder of the newest two checkpoints and the best one."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """The checkpoint that test, predict and export read."""
        return self.checkpoints / "best.ckpt"

    @property
    def predictions(self) -> Path:
        """Folder of prediction files."""
        return self.path / "predictions"

    @property
    def evaluations(self) -> Path:
        """Folder that holds one folder for each other recipe that the run was tested by."""
        return self.path / "evaluations"

    def evaluation(self, name: str) -> Path:
        """Folder of the test of this run by another recipe."""
        return self.evaluations / name

    def initial_weights(self) -> dict[str, Any] | None:
        """Path and recipe of what the run started from, for its record; None for fresh weights."""
        if not self.start.is_file():
            return None
        content = json.loads(self.start.read_text(encoding="utf-8"))
        return {key: content[key] for key in ("path", "recipe")}

    def exists(self) -> bool:
        """True where the folder holds a run's recipe."""
        return self.recipe.is_file()

    def check(self, *, overwrite: bool = False, resume: bool = False) -> None:
        """Raise unless a run may start here; writes nothing.

        Raises:
            DnaError: the folder holds something and neither word was given; both words were given; the path is a file;
                or what is to be overwritten or resumed is not a run folder.
        """
        if overwrite and resume:
            raise DnaError("--resume goes on with a run and --overwrite starts it anew: give one of them")
        if self.path.exists() and not self.path.is_dir():
            raise DnaError(f"run folder {self.path} is a file; --runs names another folder")
        if not self.path.is_dir() or not any(self.path.iterdir()):
            return
        if not (overwrite or resume):
            raise DnaError(f"run folder {self.path} exists: --resume goes on with it, --overwrite starts it anew")
        if not self.exists():
            raise DnaError(f"{self.path} is not a run folder (it holds files but no recipe.yaml); nothing was changed")

    def create(
        self,
        recipe: Mapping[str, Any],
        command: Sequence[str],
        environment: Mapping[str, Any],
        *,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        """Claim the folder and write recipe.yaml, command.txt and env.json; `check` says when it may not be.

        Two processes that start the same run at once cannot both get it. On a resume the command is appended, and a recipe
        or environment that differs from the stored one is kept as recipe.1.yaml, env.1.json and so on.

        Args:
            recipe: the merged recipe, plain values in the order to be written.
            command: the words of the command line.
            environment: content of env.json, as `record.environment` makes it.
            overwrite: delete what an earlier run wrote here.
            resume: go on with the run; a folder that does not exist yet is made.

        Raises:
            DnaError: as `check`; or another process took the folder first.
        """
        self.check(overwrite=overwrite, resume=resume)
        if overwrite:
            self.clear()
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.exists():
            self._claim()
        _replace(self.recipe, recipe_text(recipe), keep=resume)
        _replace(self.environment, json.dumps(environment, indent=2, ensure_ascii=False) + "\n", keep=resume)
        earlier = self.command.read_text(encoding="utf-8") if self.command.is_file() else ""
        write_text(self.command, earlier + shlex.join(command) + "\n")

    def clear(self) -> None:
        """Delete what a run wrote here and nothing else; links are removed, never followed.

        Raises:
            DnaError: the folder holds no recipe.yaml, so it is not a run folder.
        """
        if not self.path.is_dir() or not any(self.path.iterdir()):
            return
        if not self.exists():
            raise DnaError(f"{self.path} is not a run folder (no recipe.yaml); nothing was deleted")
        # The recipe goes last: until then a clear that was cut short can be repeated.
        written = [self.result, self.metrics, self.command, self.environment, self.start]
        written += [self.path / name for name in EVALUATION_RESULTS]
        written += sorted(self.path.glob("env.*.json")) + sorted(self.path.glob("*.part"))
        for path in written:
            path.unlink(missing_ok=True)
        for folder, patterns in WRITTEN_FOLDERS.items():
            _clear_folder(self.path / folder, patterns)
        for path in [*sorted(self.path.glob("recipe.*.yaml")), self.recipe]:
            path.unlink(missing_ok=True)

    def _claim(self) -> None:
        """Make an empty recipe.yaml, or raise where another process made it since the check."""
        try:
            os.close(os.open(self.recipe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            raise DnaError(f"run folder {self.path} was taken by another process a moment ago") from None


# A test's results per class (runs/confusion.py).
CLASS_RESULTS = ("per_class.csv", "confusion.csv", "confusion.png")

# A test's results per picture (runs/image_results.py), and what is made from them (runs/robustness_files.py).
IMAGE_RESULTS = "images.csv"
ROBUSTNESS_FILES = ("corruptions.csv", "corruptions.png", "reliability.png", "response_rate.png")
EVALUATION_RESULTS = (*CLASS_RESULTS, IMAGE_RESULTS, *ROBUSTNESS_FILES)

# What a run writes below its folder: checkpoints, predictions, results by other recipes, exports, the trees of optional loggers.
WRITTEN_FOLDERS: dict[str, tuple[str, ...]] = {
    "checkpoints": ("*.ckpt", "*.part"),
    "predictions": ("*.jsonl", "*.part"),
    "evaluations": (
        "*/result.json",
        "*/predictions/*.jsonl",
        "*/metrics.csv",
        *(f"*/{name}" for name in EVALUATION_RESULTS),
    ),
    "export": ("*/*",),
    "tensorboard": ("**/events.out.tfevents.*",),
    "wandb": ("**/*",),
    "mlflow": ("**/*",),
}


def recipe_text(recipe: Mapping[str, Any]) -> str:
    """The YAML text of a merged recipe, with a first line that says what it is."""
    import yaml

    first = f"# Merged recipe of this run, written by dna_suite {__version__}; --config with this file runs it again."
    return f"{first}\n{yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True, width=120)}"


def _replace(path: Path, text: str, *, keep: bool) -> None:
    """Write a text; where `keep` is set and the file says something else, that is kept under the next free number."""
    if keep and path.is_file():
        old = path.read_text(encoding="utf-8")
        if old == text:
            return
        number = 1
        while (kept := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
            number += 1
        if old:
            write_text(kept, old)
    write_text(path, text)


def _clear_folder(folder: Path, patterns: Sequence[str]) -> None:
    """Delete the files below a folder that match, then the folders that this left empty."""
    if folder.is_symlink():
        folder.unlink()
        return
    if not folder.is_dir():
        return
    if "**/*" in patterns:
        shutil.rmtree(folder)
        return
    for pattern in patterns:
        for path in list(folder.glob(pattern)):
            inside = path.relative_to(folder).parents
            linked = any((folder / parent).is_symlink() for parent in inside)
            if not linked and (path.is_symlink() or path.is_file()):
                path.unlink()
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        if not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()
    if not any(folder.iterdir()):
        folder.rmdir()
