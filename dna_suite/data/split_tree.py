"""The pictures of one split, in class folders or flat, as files or inside tar shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dna_suite.data.folders import Folder, walk_pictures
from dna_suite.data.samples import Paths
from dna_suite.data.shard_index import find_shards, read_index
from dna_suite.data.shards import Members, OpenShards


class FolderTree(Folder):
    """A split as files."""

    note = ""

    def walk(self, name: str) -> Iterator[tuple[list[str], int]]:
        """Paths of the pictures in and below a class folder, and entries ignored there."""
        return walk_pictures(self.path / name, f"{name}/")

    def paths(self, names: Sequence[str]) -> Paths:
        """Where these pictures are read from."""
        return Paths(names)


class ShardTree:
    """A split inside tar shards: what the folder would be if they were unpacked in it.

    Args:
        path: a folder with shards.

    `folders`, `pictures` and `ignored` are as those of `Folder`; `note` says what was found.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        index, place = read_index(path)
        self.shards, self.ignored = OpenShards(index), index.ignored
        count = f"{len(index.shards)} tar shard{'' if len(index.shards) == 1 else 's'}"
        self.note = f"{path}: {count}, the table of members is {place or 'not kept: no folder to write it to'}"
        self.pictures = [name for name in index.names if "/" not in name]
        # The table is in a walk's order: flat pictures, then class by class.
        self.classes: dict[str, list[int]] = {}
        for row in range(len(self.pictures), len(index.names)):
            self.classes.setdefault(index.names[row].partition("/")[0], [row, row])[1] = row + 1
        self.folders = list(self.classes)

    def walk(self, name: str) -> Iterator[tuple[list[str], int]]:
        """Paths of the pictures in and below a class folder; ignored members are counted for the whole tree."""
        yield [self.shards.index.names[row] for row in range(*self.classes[name])], 0

    def paths(self, names: Sequence[str]) -> Paths:
        """Where these pictures are read from."""
        rows = {name: row for row, name in enumerate(self.shards.index.names)}
        return Members(self.shards, np.array([rows[name] for name in names], dtype=np.int64))


def open_tree(path: Path) -> FolderTree | ShardTree:
    """The split in a folder: its files, or, where there are none, its shards."""
    tree = FolderTree(path)
    return ShardTree(path) if not tree.folders and not tree.pictures and find_shards(path) else tree
