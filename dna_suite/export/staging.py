"""A folder of files that appear together, after they were checked, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dna_suite.errors import DnaError


@contextmanager
def staged(out: Path, needed: int) -> Iterator[Path]:
    """Gives a hidden folder to write into, and moves what is in it to its place where the block ends without an error.

    Args:
        out: the folder that the files are for; made where it is missing.
        needed: bytes that they take, about.

    Raises:
        DnaError: the folder cannot be written, or the disk is full.
    """
    parent = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise DnaError(f"{out}: no space left: needs {needed / 1e6:.1f} MB, has {free / 1e6:.1f} MB; nothing was written")
    try:
        stage = Path(tempfile.mkdtemp(prefix=".export-", dir=parent))
        try:
            yield stage
            out.mkdir(parents=True, exist_ok=True)
            # Some writers let nobody else read their file.
            hidden = os.umask(0)
            os.umask(hidden)
            for path in sorted(stage.iterdir()):
                path.chmod(0o666 & ~hidden)
                os.replace(path, out / path.name)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    except OSError as error:
        raise DnaError(f"{error.filename or out} cannot be written: {error.strerror or error}") from None


def check_free(out: Path, names: Sequence[str], overwrite: bool) -> None:
    """Refuses to replace what is there unless that is asked for; writes nothing.

    Args:
        out: the folder that the files are for.
        names: the files that will be written.
        overwrite: files of these names may be replaced.

    Raises:
        DnaError: the path is a file, or one of the files exists.
    """
    if out.exists() and not out.is_dir():
        raise DnaError(f"{out} is a file: --out names a folder")
    there = [out / name for name in names if (out / name).exists()]
    if there and not overwrite:
        raise DnaError(f"{there[0]} exists: --overwrite replaces it, --out DIR names another folder")
