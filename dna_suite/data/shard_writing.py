"""Writes a data set of picture files as uncompressed tar shards."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from dna_suite.data.imagenet import ImageNet, Listing
from dna_suite.data.pictures import UnreadablePicture
from dna_suite.data.shard_index import read_index
from dna_suite.data.toy import current_umask
from dna_suite.errors import DnaError

# Header, a member's last block and the end mark are small against a picture.
OVERHEAD = 2 * tarfile.BLOCKSIZE


def write_shards(data: ImageNet, folder: str | Path, most_bytes: int) -> dict[str, tuple[int, int]]:
    """Write train, val and, where there is one, test; the folder appears whole or not at all.

    Members are CLASS/NAME, in the order of the classes; owners and times are left out, so the same pictures give the same bytes.

    Args:
        data: what is written, all of it.
        folder: where it goes; it must be missing or empty.
        most_bytes: a shard ends before it would be larger, but holds one picture at least.

    Returns:
        Shards and pictures of each folder written.

    Raises:
        DnaError: the folder holds something, a file cannot be read, or the disk is full.
    """
    folder = Path(folder).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DnaError(f"{folder} exists and is not empty: name a new folder for the shards")
    listings = {listing.folder.name: listing for listing in map(data.list_split, ("train", "val", "test"))}
    part = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        counts = {}
        for name, listing in listings.items():
            counts[name] = (write_split(listing, data.classes, part / name, most_bytes), len(listing.labels))
            # Reads every header once more, and keeps the table beside the shards.
            index, _ = read_index(part / name)
            assert len(index.names) == len(listing.labels)
        part.chmod(0o777 & ~current_umask())
        os.replace(part, folder)
    except OSError as problem:
        raise DnaError(f"{folder}: {problem.strerror or problem}; nothing was written") from None
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
    return counts


def write_split(listing: Listing, classes: list[str], folder: Path, most_bytes: int) -> int:
    """Write one split as shards and return their number."""
    folder.mkdir()
    shards = 0
    archive: tarfile.TarFile | None = None
    with ExitStack() as opened:
        for name, data in read_pictures(listing, classes):
            if archive is None or archive.offset + len(data) + OVERHEAD > most_bytes:
                opened.close()
                path = folder / f"{folder.name}-{shards:06d}.tar"
                archive = opened.enter_context(tarfile.open(path, "w", format=tarfile.GNU_FORMAT))
                shards += 1
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return shards


def read_pictures(listing: Listing, classes: list[str]) -> Iterator[tuple[str, bytes]]:
    """CLASS/NAME and content of every picture of a split.

    Raises:
        DnaError: a file cannot be read or is empty.
    """
    for row, label in enumerate(listing.labels.tolist()):
        name = listing.paths[row]
        data = listing.paths.read(listing.folder, row)
        if not data:
            raise UnreadablePicture(f"{listing.paths.locate(listing.folder, row)}: empty file")
        yield name if "/" in name else f"{classes[label]}/{name}", data
