"""Pictures inside tar shards: any of them at any time, by one read at a known place."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from dna_suite.data.pictures import UnreadablePicture
from dna_suite.data.samples import Paths
from dna_suite.data.shard_index import Index

# Of 1,000 class archives a process that may open 1,024 files keeps these.
MOST_OPEN = 256


class OpenShards:
    """The shards of a folder, each opened by the process that reads from it; the ones used last stay open.

    Reads name their place, so processes that share a descriptor do not disturb each other.

    Args:
        index: the folder's table.
    """

    def __init__(self, index: Index) -> None:
        self.__setstate__({"index": index})

    def __getstate__(self) -> dict[str, Any]:
        return {"index": self.index}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.index: Index = state["index"]
        self.lock, self.owner = threading.Lock(), os.getpid()
        self.files: OrderedDict[int, int] = OrderedDict()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open."""
        while self.files:
            os.close(self.files.popitem()[1])

    def read(self, root: Path, row: int) -> bytes:
        """The bytes of a picture.

        Args:
            root: the folder.
            row: of the table.

        Raises:
            UnreadablePicture: the shard is gone or is not the one that the table was made from.
        """
        shard, offset, size = (int(column[row]) for column in (self.index.shard, self.index.offset, self.index.size))
        # Another thread must not close the file between opening and reading.
        with self.lock:
            try:
                data = os.pread(self.open(root, shard), size, offset)
            except OSError as problem:
                raise UnreadablePicture(f"{self.path(root, row)}: {problem.strerror}") from None
        if len(data) < size:
            raise UnreadablePicture(f"{self.path(root, row)}: cut short")
        return data

    def path(self, root: Path, row: int) -> str:
        """Shard and name of a picture, for messages."""
        return f"{root / self.index.shards[int(self.index.shard[row])]}:{self.index.names[row]}"

    def open(self, root: Path, shard: int) -> int:
        """The descriptor of a shard in this process."""
        if self.owner != os.getpid():
            self.close()
            self.owner = os.getpid()
        if shard in self.files:
            self.files.move_to_end(shard)
            return self.files[shard]
        path = root / self.index.shards[shard]
        file = os.open(path, os.O_RDONLY)
        status = os.fstat(file)
        if (status.st_size, status.st_mtime_ns) != (self.index.sizes[shard], self.index.times[shard]):
            os.close(file)
            raise UnreadablePicture(f"{path}: changed since its table was made: start again")
        if len(self.files) == MOST_OPEN:
            os.close(self.files.popitem(last=False)[1])
        self.files[shard] = file
        return file


class Members(Paths):
    """Pictures in shards.

    Args:
        shards: where they are read from.
        rows: [n] their rows in the shards' table.
    """

    def __init__(self, shards: OpenShards, rows: np.ndarray) -> None:
        self.shards, self.rows = shards, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> str:
        return self.shards.index.names[int(self.rows[index])]

    def select(self, indices: np.ndarray) -> Members:
        """These pictures only, in this order."""
        return Members(self.shards, self.rows[indices])

    def locate(self, root: Path, index: int) -> str:
        """Shard and name of a picture."""
        return self.shards.path(root, int(self.rows[index]))

    def read(self, root: Path, index: int) -> bytes:
        """The bytes of a picture."""
        return self.shards.read(root, int(self.rows[index]))
