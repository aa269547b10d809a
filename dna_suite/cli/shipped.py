"""The recipes and fragments that travel with the package: where they are, and a file by the name that a user typed."""

from __future__ import annotations

from pathlib import Path

import dna_suite
from dna_suite.errors import DnaError, nearest

FOLDERS = ("tasks", "configs")


def shipped_root() -> Path:
    """The folder that holds tasks/ and configs/: the clone that the package runs from, else a folder inside the package."""
    package = Path(dna_suite.__file__).resolve().parent
    clone = package.parent
    return clone if (clone / "pyproject.toml").is_file() and (clone / "tasks").is_dir() else package / "recipes"


def shipped_files(folder: str) -> list[Path]:
    """The YAML files of one shipped folder, by name.

    Args:
        folder: "tasks" or "configs".
    """
    return sorted((shipped_root() / folder).glob("*.yaml"))


def find_recipe(given: str | Path) -> tuple[Path, bool]:
    """The file that a user means, and whether it is a shipped one because there is none of that name here.

    Args:
        given: path as typed; tasks/NAME.yaml and configs/NAME.yaml fall back on the shipped files.

    Raises:
        DnaError: there is no such file; the nearest shipped name is named.
    """
    path = Path(given)
    if path.is_file():
        return path, False
    if path.is_dir():
        raise DnaError(f"{given} is a folder; --config takes a YAML file")
    known = {f"{folder}/{file.name}": file for folder in FOLDERS for file in shipped_files(folder)}
    if path.as_posix() in known:
        return known[path.as_posix()], True
    near = nearest(path.as_posix(), known) or {Path(name).stem: name for name in known}.get(path.stem)
    hint = f"; did you mean {near}?" if near else "; `dna list recipes` shows those that ship with dna_suite"
    raise DnaError(f"no recipe {given} in {Path.cwd()}{hint}")
