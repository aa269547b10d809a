"""The files of a checkpoint folder: their names, whether one is whole, and which one to go on from."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from dna_suite.backbones.files import fault_of
from dna_suite.errors import DnaError

BEST = "best.ckpt"
_STEP = re.compile(r"step(\d{8,})\.ckpt")
_PART = re.compile(r"\..+\.ckpt\.(\d+)\.part")

_logger = logging.getLogger(__name__)


def step_name(step: int) -> str:
    """The file name of the checkpoint after `step` optimiser steps."""
    return f"step{step:08d}.ckpt"


def step_files(folder: Path) -> dict[int, Path]:
    """The step checkpoints of a folder, optimiser step -> path, lowest first; empty where there is no folder."""
    if not folder.is_dir():
        return {}
    found = {int(match[1]): path for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))}
    return dict(sorted(found.items()))


def newest_checkpoint(folder: Path) -> Path | None:
    """The step file with the highest step that is whole, or None where the folder holds no step file.

    A file that is not whole is named in a warning with the reason, and the one before is taken.

    Raises:
        DnaError: there are step files and none is whole.
    """
    faults = []
    for path in reversed(step_files(folder).values()):
        fault = fault_of(path)
        if fault is None:
            return path
        faults.append(f"{path.name} {fault}")
        _logger.warning("%s %s; trying the checkpoint before it", path, fault)
    if faults:
        raise DnaError(f"{folder}: no whole checkpoint to resume from: {'; '.join(faults)}")
    return None


def best_checkpoint(folder: Path) -> Path:
    """The checkpoint with the best monitored value; the newest one of a run that was never validated.

    Raises:
        DnaError: there is none, or none is whole.
    """
    path = folder / BEST
    if path.is_file():
        if fault := fault_of(path):
            raise DnaError(f"{path} {fault}")
        return path
    newest = newest_checkpoint(folder)
    if newest is None:
        raise DnaError(f"{folder} holds no checkpoint yet")
    return newest


def remove_stale_parts(folder: Path) -> list[Path]:
    """Remove the part files that killed processes of this machine left behind; returns what was removed."""
    removed = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _PART.fullmatch(path.name)
        if match and not _is_alive(int(match[1])):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def part_of(path: Path) -> Path:
    """Where this process writes a checkpoint before it gets its name: a hidden file beside it."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
