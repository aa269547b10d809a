"""The table of a folder of tar shards: which picture lies where; made once, kept as a file, made anew when a shard changes."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dna_suite.data.folders import is_leftover
from dna_suite.data.pictures import is_picture
from dna_suite.data.samples import Paths
from dna_suite.data.tar_members import Member, list_members
from dna_suite.errors import DnaError

VERSION = 1
FILE = ".shards.npz"
COLUMNS = ("sizes", "times", "shard", "offset", "size")
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


class Index(NamedTuple):
    """What the shards of a folder hold, in the order in which a walk through the unpacked folder meets it.

    Args:
        shards: file names, sorted.
        sizes: [shards] bytes of each, int64.
        times: [shards] when each was last changed, nanoseconds, int64.
        names: the pictures' paths below the folder.
        shard: [n] the shard of each picture, int32.
        offset: [n] where its bytes begin, int64.
        size: [n] its bytes, int64.
        ignored: hidden, system-made or non-picture members.
    """

    shards: Paths
    sizes: np.ndarray
    times: np.ndarray
    names: Paths
    shard: np.ndarray
    offset: np.ndarray
    size: np.ndarray
    ignored: int


def find_shards(folder: Path) -> list[str]:
    """The names of the tar archives in a folder, sorted.

    Raises:
        DnaError: there are compressed ones.
    """
    names = sorted(entry.name for entry in os.scandir(folder) if not is_leftover(entry.name) and not entry.is_dir())
    compressed = [name for name in names if name.lower().endswith(COMPRESSED)]
    shards = [name for name in names if name.lower().endswith(".tar")]
    if compressed:
        raise DnaError(f"{folder / compressed[0]}: compressed; shards are plain tar archives: unpack it (gunzip, unxz, unzstd)")
    return shards


def read_index(folder: Path) -> tuple[Index, str]:
    """The table of a folder's shards, from its file where that is right, and where that file is.

    The file lies beside the shards; where nothing can be written there, in the user's cache folder.

    Raises:
        DnaError: a shard cannot be read; see `list_members`.
    """
    shards = find_shards(folder)
    status = [os.stat(folder / name) for name in shards]
    sizes, times = (np.array([getattr(one, key) for one in status], dtype=np.int64) for key in ("st_size", "st_mtime_ns"))
    for place in (folder / FILE, cache_file(folder)):
        found = load(place)
        if found and list(found.shards) == shards and (found.sizes == sizes).all() and (found.times == times).all():
            return found, str(place)
    index = build(folder, shards, sizes, times)
    for place in (folder / FILE, cache_file(folder)):
        try:
            store(index, place)
        except OSError:
            continue
        return index, str(place)
    return index, ""


def cache_file(folder: Path) -> Path:
    """The file of a folder's table in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache) / "dna_suite" / f"shards-{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]}.npz"


def build(folder: Path, shards: Sequence[str], sizes: np.ndarray, times: np.ndarray) -> Index:
    """Read the headers of all shards.

    Raises:
        DnaError: a shard cannot be read, holds archives, or two members have one name.
    """
    found: list[tuple[str, int, Member]] = []
    ignored = 0
    for number, shard in enumerate(shards):
        members = list_members(folder / shard)
        if members and all(member.name.lower().endswith(".tar") for member in members):
            how = f"tar -xf {shard} -C FOLDER; the archives inside can then be read as they are"
            raise DnaError(f"{folder / shard}: an archive of {len(members)} archives: unpack it once ({how})")
        pictures = [member for member in members if is_wanted(member.name)]
        ignored += len(members) - len(pictures)
        prefix = class_of(shard, pictures)
        found += [(prefix + member.name, number, member) for member in pictures]
    found.sort(key=lambda entry: walk_order(entry[0]))
    for (name, one, _), (other, two, _) in pairwise(found):
        if name == other:
            raise DnaError(f"{folder}: {name!r} stands twice ({shards[one]}, {shards[two]})")
    numbers = np.array([(number, member.offset, member.size) for _, number, member in found], dtype=np.int64).reshape(-1, 3)
    names = Paths([name for name, _, _ in found])
    return Index(Paths(shards), sizes, times, names, numbers[:, 0].astype(np.int32), numbers[:, 1], numbers[:, 2], ignored)


def is_wanted(name: str) -> bool:
    """Whether a member is a picture that a folder's listing would take."""
    return is_picture(name) and not any(is_leftover(part) for part in name.split("/"))


def class_of(shard: str, pictures: Sequence[Member]) -> str:
    """The class folder that an archive of one class stands for, as CLASS/, or nothing.

    ILSVRC2012's training archive holds one archive for each class, n01440764.tar, with pictures n01440764_10026.JPEG.
    """
    stem = shard[: -len(".tar")]
    alone = bool(pictures) and all(member.name.startswith(f"{stem}_") and "/" not in member.name for member in pictures)
    return f"{stem}/" if alone else ""


def walk_order(name: str) -> list[tuple[bool, str]]:
    """Sorts paths as `walk_pictures` meets them: a folder's pictures, then its folders."""
    *folders, last = name.split("/")
    return [*((True, folder) for folder in folders), (False, last)]


def store(index: Index, place: Path) -> None:
    """Write a table, whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"version": VERSION, "ignored": index.ignored}
    content |= {key: getattr(index, key) for key in COLUMNS}
    for key in ("shards", "names"):
        paths = getattr(index, key)
        content |= {key: np.frombuffer(paths.text, dtype=np.uint8), f"{key}_offsets": paths.offsets}
    file, part = tempfile.mkstemp(prefix=f"{FILE}.", dir=place.parent)
    try:
        with os.fdopen(file, "wb") as stream:
            np.savez(stream, **content)
        os.chmod(part, 0o644)
        os.replace(part, place)
    except BaseException:
        os.unlink(part)
        raise


def load(place: Path) -> Index | None:
    """A table from its file; None where there is none that can be used."""
    try:
        with np.load(place, allow_pickle=False) as file:
            if int(file["version"]) != VERSION:
                return None
            shards, names = (Paths.join(file[key].tobytes(), file[f"{key}_offsets"]) for key in ("shards", "names"))
            columns = {key: file[key] for key in COLUMNS}
            return Index(shards=shards, names=names, ignored=int(file["ignored"]), **columns)
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None
