"""Reads files of tensors and plain values, and runs nothing that they hold."""

from __future__ import annotations

import argparse
import json
import pickle
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from dna_suite.errors import DnaError, UnknownName

SUFFIXES = (".bin", ".ckpt", ".pt", ".pth", ".pyth", ".safetensors")
# What the weights are called in a folder that a model was saved to.
FOLDER_FILES = ("model.safetensors", "pytorch_model.bin", "model.pth")


def read_file(path: Path, mapped: bool = True, namespaces: bool = False) -> Any:
    """The content of a file of weights: tensors on the CPU, numbers, strings and containers of them.

    A zip archive's checksums are verified first, since torch loads a file with flipped bits without complaint.

    Args:
        path: a `.safetensors` file, or one that torch.save wrote.
        mapped: leave tensors on the disk until they are used.
        namespaces: let an `argparse.Namespace` of plain values through: training programs of others put their options beside
            their weights.

    Raises:
        DnaError: the file is missing, torn or corrupt, has another suffix, or holds anything but tensors and plain values.
    """
    if not path.is_file():
        raise DnaError(f"{path}: no such file")
    if path.suffix not in SUFFIXES:
        raise DnaError(f"{path}: weights are read from {', '.join(SUFFIXES)} files")
    try:
        content = load_file(path) if path.suffix == ".safetensors" else _read_torch(path, mapped, namespaces)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = f"Python object {found[1]}" if found else "a pickle that is no file of tensors"
        raise DnaError(f"{path}: refused, it holds {what}; only tensors and plain values are read") from None
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        if isinstance(error, DnaError):
            raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DnaError(f"{path}: torn, corrupt or no file of weights: {reason}") from None
    # torch's safe loader lets through what any imported library has added to its list of safe classes.
    if foreign := foreign_value(content, namespaces):
        raise DnaError(f"{path}: refused, {foreign}; only tensors and plain values are read")
    return content


def _read_torch(path: Path, mapped: bool, namespaces: bool) -> Any:
    zipped = zipfile.is_zipfile(path)
    if zipped and (fault := fault_of(path)):
        raise DnaError(f"{path} {fault}")
    with torch.serialization.safe_globals([argparse.Namespace] if namespaces else []):
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped and mapped)


def read_texts(path: Path) -> dict[str, str]:
    """The texts beside the tensors of a `.safetensors` file; empty for other files."""
    if path.suffix != ".safetensors":
        return {}
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def read_json(path: Path) -> dict[str, Any]:
    """The dictionary in a JSON file; empty where there is no file.

    Raises:
        DnaError: the file is no JSON, or holds no dictionary.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DnaError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise DnaError(f"{path}: a dictionary is needed, not a {type(content).__name__}")
    return content


def fault_of(path: Path) -> str | None:
    """Why a checkpoint file cannot be used, or None where every byte agrees with its stored checksum.

    `torch.load` reads a file with a flipped bit without complaint; the checksums of its zip container tell.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except zipfile.BadZipFile:
        return f"is cut off or no checkpoint ({path.stat().st_size} bytes)"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if bad is None else f"is corrupt: the checksum of {bad} differs"


def foreign_value(content: Any, namespaces: bool = False) -> str | None:
    """The place and type of something that is no tensor, number, text, None or container of these, else None.

    Exact types: a numpy float is a float to `isinstance`, but a safe load in a bare process refuses it.

    Args:
        content: what a file held, or is to hold.
        namespaces: an `argparse.Namespace` counts as a container.
    """
    waiting: list[tuple[str, Any]] = [("", content)]
    seen: set[int] = set()
    while waiting:
        where, value = waiting.pop()
        if value is None or type(value) in (bool, int, float, complex, str, Tensor, nn.Parameter) or id(value) in seen:
            continue
        seen.add(id(value))
        inside = _inside(vars(value) if namespaces and type(value) is argparse.Namespace else value)
        if inside is None:
            return f"{where or 'its content'} is a {type(value).__module__}.{type(value).__qualname__}"
        waiting.extend((f"{where}[{key!r}]", part) for key, part in inside)
    return None


def _inside(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Keys and parts of a container, the keys of a dictionary among its parts; None for anything else."""
    if isinstance(value, dict):
        return [*value.items(), *((key, key) for key in value)]
    if isinstance(value, list | tuple):
        return enumerate(value)
    if isinstance(value, set | frozenset):
        return ((part, part) for part in value)
    return None


def find_checkpoint(path: Path, checkpoint: str = "best") -> Path:
    """The file that a path means: itself, a checkpoint of a run folder, or the weights in a folder that a model was saved to.

    Args:
        path: a file, a run folder, or a folder with `model.safetensors`, `pytorch_model.bin` or `model.pth`.
        checkpoint: "best" (the newest step where there is no best), "last" (the newest step), or a file name without suffix.

    Raises:
        UnknownName: the run folder has no such checkpoint.
        DnaError: the path does not exist, or the folder holds no checkpoint.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise DnaError(f"{path}: no such file or run folder")
    saved = next((path / name for name in FOLDER_FILES if (path / name).is_file()), None)
    if saved is not None and not (path / "checkpoints").is_dir():
        return saved
    files = {file.stem: file for file in (path / "checkpoints").glob("*.ckpt")}
    steps = sorted((name for name in files if re.fullmatch(r"step\d+", name)), key=lambda name: int(name[4:]))
    if not steps and "best" not in files:
        raise DnaError(f"{path}: no run folder: checkpoints/best.ckpt or checkpoints/step*.ckpt is needed")
    if checkpoint in files:
        return files[checkpoint]
    if checkpoint in ("best", "last"):
        return files[steps[-1] if steps else "best"]
    raise UnknownName("checkpoint", checkpoint, [*files, "last"], str(path))
