"""Writing a checkpoint whole or not at all, and reading it without running code from it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from torch import Tensor

from dna_suite.backbones.files import foreign_value, read_file
from dna_suite.errors import DnaError
from dna_suite.runs.checkpoint_files import part_of


class AtomicCheckpointIO(CheckpointIO):
    """Writes into a hidden part file beside the target, syncs it, renames it and syncs the folder.

    Lightning's own writer moves a file from the system's temporary folder, which leaves a cut-off file under the final
    name where that is another, full file system, and never syncs.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write one file; on any exception the folder is as it was.

        Raises:
            DnaError: the disk is full (needed and free bytes are named) or the folder cannot be written.
        """
        assert storage_options is None, "this writer has no storage options"
        foreign = foreign_value(checkpoint)
        assert foreign is None, f"a checkpoint holds plain values and tensors only: {foreign}"
        target = Path(path)
        part = part_of(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(part, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
        except BaseException as error:
            with contextlib.suppress(OSError):
                part.unlink()
            reason = _reason(error, checkpoint, target.parent)
            if reason is None:
                raise
            raise DnaError(f"{target} was not saved: {reason}; the checkpoints before it are untouched") from error
        _sync_folder(target.parent)

    def load_checkpoint(self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = None) -> dict[str, Any]:
        """The content of a file; tensors lie on the CPU, and Lightning moves what it needs.

        Always loads safely, whatever `weights_only` says: some strategies do not pass it on, and None means that an
        environment variable decides.

        Raises:
            DnaError: the file is missing, not whole, or holds anything but tensors and plain values.
        """
        return read_file(Path(path), mapped=False)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove one file; a missing one is no error."""
        Path(path).unlink(missing_ok=True)


def _reason(error: BaseException, checkpoint: dict[str, Any], folder: Path) -> str | None:
    """What an exception of writing means for the user; None where it is no fault of the disk.

    `torch.save` turns a failed write into a RuntimeError about positions, so the cause is looked for behind it.
    """
    link: BaseException | None = error
    while link is not None and not isinstance(link, OSError):
        link = link.__cause__ or link.__context__
    if link is None:
        return None
    if link.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(folder).free
        return f"no space left: needs {_megabytes(_tensor_bytes(checkpoint))}, has {_megabytes(free)}"
    return link.strerror or str(link)


def _tensor_bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(_tensor_bytes(part) for part in value.values())
    if isinstance(value, list | tuple | set):
        return sum(_tensor_bytes(part) for part in value)
    return 0


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_description(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint says about itself, without its tensors being copied.

    Raises:
        DnaError: the file cannot be read safely or was not written by the suite.
    """
    content = read_file(checkpoint)
    if not isinstance(content, dict) or not isinstance(content.get("dna"), dict):
        raise DnaError(f"{checkpoint} was not written by dna_suite: --init_from takes foreign weights")
    return content["dna"]
