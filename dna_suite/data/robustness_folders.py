"""The folders of ImageNet-A, -R and -O: what was published, and whether a folder is that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dna_suite.data.folders import Folder, walk_pictures
from dna_suite.errors import DnaError, nearest

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")


@dataclass(frozen=True)
class PublishedSet:
    """One set as published.

    Args:
        folder: what its archive unpacks to.
        pictures: their number; of val that in O's class folders.
        index_sum: sum of the ImageNet-1k indices of its class folders.
        folders: number of class folders.
    """

    folder: str
    pictures: int
    index_sum: int
    folders: int = 200


# Source: counted in the archives; the sums tell the three class lists, which overlap, from each other.
PUBLISHED = {
    "a": PublishedSet("imagenet-a", 7_500, 102_178),
    "r": PublishedSet("imagenet-r", 30_000, 86_135),
    "o": PublishedSet("imagenet-o", 2_000, 134_542),
    "val": PublishedSet("val", 10_000, 134_542),
}


@dataclass(frozen=True)
class SetFolder:
    """The class folders of a set: names are ImageNet ids, sorted, which is by ascending ImageNet index."""

    path: Path
    names: tuple[str, ...]


@cache
def known_ids() -> list[str]:
    """ImageNet-1k's 1,000 ids in class order, which is sorted order."""
    from timm.data import ImageNetInfo

    return list(ImageNetInfo("imagenet-1k").label_names())


def find_set(path: Path, key: str, only: Sequence[str] | None = None) -> SetFolder:
    """The class folders of a set.

    Args:
        path: the set's folder.
        key: a key of `PUBLISHED`, for messages.
        only: class folders to take, all of which must be there; None takes all.

    Raises:
        DnaError: the folder is missing or an archive, is flat, has names that are no ImageNet ids, or lacks one of `only`.
    """
    published = PUBLISHED[key].folder
    if not path.is_dir():
        packed = [place for ending in ("", *ARCHIVES) if (place := path.with_name(path.name + ending)).is_file()]
        if packed:
            raise DnaError(f"{packed[0]} is an archive or a file: unpack it to folders {path}/WNID")
        raise DnaError(f"no folder {path}: {published} is missing (expected {path}/WNID/NAME.jpg)")
    found = Folder(path)
    if not found.folders:
        there = f"{len(found.pictures)} pictures but no class folders" if found.pictures else "no class folder"
        raise DnaError(f"{path}: {there}; expected {path}/WNID/NAME.jpg, one folder for each class")
    if all(name.isdigit() for name in found.folders):
        raise DnaError(
            f"{path}: its folders are numbers ({', '.join(found.folders[:3])}), whose order says nothing sure; "
            "their names are ImageNet ids such as n01440764"
        )
    ids = set(known_ids())
    unknown = [name for name in found.folders if name not in ids]
    if unknown:
        near = nearest(unknown[0], ids) if unknown[0].startswith("n") else None
        hint = f"; did you mean {near}?" if near else ""
        raise DnaError(f"{path}: folder {unknown[0]!r} is no id of ImageNet-1k, such as n01440764{hint}")
    if only is None:
        return SetFolder(path, tuple(found.folders))
    lacking = [name for name in only if name not in found.folders]
    if lacking:
        raise DnaError(f"{path}: no folder {lacking[0]}, which imagenet-o has ({len(lacking)} of {len(only)} are missing)")
    return SetFolder(path, tuple(only))


def require_published(key: str, folder: SetFolder, way_on: str) -> None:
    """Refuse class folders that are not those of the published set.

    Args:
        key: a key of `PUBLISHED`.
        folder: what was found.
        way_on: the end of the message.

    Raises:
        DnaError: another number of folders, or other ones.
    """
    published = PUBLISHED[key]
    if len(folder.names) != published.folders:
        raise DnaError(f"{folder.path}: {len(folder.names)} class folders, {published.folder} has {published.folders}: {way_on}")
    place = {name: index for index, name in enumerate(known_ids())}
    indices = [place[name] for name in folder.names]
    assert indices == sorted(set(indices)), "sorted ids are in class order"
    if sum(indices) != published.index_sum:
        other = next((entry.folder for entry in PUBLISHED.values() if entry.index_sum == sum(indices)), None)
        told = f"they are those of {other}" if other else f"their indices sum to {sum(indices)}, not {published.index_sum}"
        raise DnaError(f"{folder.path}: 200 class folders, but not {published.folder}'s: {told}")


def list_pictures(path: Path, name: str) -> list[str]:
    """Paths of the pictures of a class folder, relative to the set's folder, sorted."""
    return sorted(found for paths, _ in walk_pictures(path / name, f"{name}/") for found in paths)
