"""Folders of pictures: what counts as one, and what operating systems and tools leave in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dna_suite.data.pictures import is_picture

LEFTOVERS = frozenset({"__MACOSX", "Thumbs.db", "desktop.ini", "$RECYCLE.BIN", "lost+found", "@eaDir"})


def is_leftover(name: str) -> bool:
    """Whether an entry is hidden, or made by an operating system or a tool."""
    return name.startswith(".") or name in LEFTOVERS


class Folder:
    """The entries of one folder, sorted by name, counted where they are ignored.

    Args:
        path: an existing folder.

    `folders` and `pictures` are names; `ignored` counts left-over entries and files that are no pictures.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folders: list[str] = []
        self.pictures: list[str] = []
        self.ignored = 0
        with os.scandir(path) as entries:
            for entry in entries:
                if is_leftover(entry.name):
                    self.ignored += 1
                elif entry.is_dir():
                    self.folders.append(entry.name)
                elif is_picture(entry.name):
                    self.pictures.append(entry.name)
                else:
                    self.ignored += 1
        self.folders.sort()
        self.pictures.sort()


def walk_pictures(path: Path, prefix: str = "") -> Iterator[tuple[list[str], int]]:
    """The pictures under a folder and below, folder by folder: their paths with `prefix` before them, and the ignored entries."""
    folder = Folder(path)
    yield [prefix + name for name in folder.pictures], folder.ignored
    for name in folder.folders:
        yield from walk_pictures(path / name, f"{prefix}{name}/")
