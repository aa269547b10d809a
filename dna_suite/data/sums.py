"""Whether a file is the published one: its md5 sum."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from dna_suite.errors import DnaError

SUMS = "MD5SUMS"


def md5_of(path: Path) -> str:
    """The md5 sum of a file, as md5sum prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def require_md5(path: Path, published: Mapping[str, str], remedy: str) -> None:
    """Refuse a file that is not the published one, or the one that a file MD5SUMS beside it names, as toy sets have it.

    Args:
        path: the file.
        published: file name -> md5 sum.
        remedy: what to do, for the message.

    Raises:
        DnaError: the sums differ; both are named.
    """
    expected = {**published, **read_sums(path.parent)}[path.name]
    found = md5_of(path)
    if found != expected:
        raise DnaError(f"{path}: md5 {found}, expected {expected}: the file is cut or changed. {remedy}")


def read_sums(folder: Path) -> dict[str, str]:
    """File name -> md5 sum, as a file MD5SUMS in the folder says; empty where there is none."""
    file = folder / SUMS
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise DnaError(f"{file}: a line is a sum and a file name, as md5sum writes them")
    return {name.lstrip("*"): total for total, name in pairs}


def write_sums(folder: Path) -> None:
    """A file MD5SUMS with the sum of every file that lies in the folder."""
    sums = [f"{md5_of(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.is_file()]
    (folder / SUMS).write_text("".join(sums), encoding="utf-8")
