"""The folders of sets that test a classifier of ImageNet: what was published, and whether a folder is that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from dna_suite.data.folders import Folder, walk_pictures
from dna_suite.errors import DnaError, nearest

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")


@dataclass(frozen=True)
class PublishedSet:
    """One set as published.

    Args:
        title: what tables and figures call it.
        folder: what its archive unpacks to; val is ImageNet's own.
        pictures: their number; of val that in O's class folders, of real those that have a label.
        index_sum: sum of the ImageNet-1k indices of its class folders.
        folders: number of class folders.
        numbered: a folder's name may be the class index in place of the id.
    """

    title: str
    folder: str
    pictures: int
    index_sum: int
    folders: int = 200
    numbered: bool = False


# Source: A, R and O counted in the archives, whose class lists overlap: the sums tell them apart. ImageNet-V2, Sketch, ReaL and C
# as their authors describe them; of ReaL the pictures with a label are counted in the copy that timm brings.
PUBLISHED = {
    "a": PublishedSet("ImageNet-A", "imagenet-a", 7_500, 102_178),
    "r": PublishedSet("ImageNet-R", "imagenet-r", 30_000, 86_135),
    "o": PublishedSet("ImageNet-O", "imagenet-o", 2_000, 134_542),
    "val": PublishedSet("ImageNet val, classes of O", "val", 10_000, 134_542),
    "v2": PublishedSet("ImageNet-V2", "imagenetv2-matched-frequency-format-val", 10_000, 499_500, 1000, numbered=True),
    "v2-threshold": PublishedSet("ImageNet-V2 0.7", "imagenetv2-threshold0.7-format-val", 10_000, 499_500, 1000, numbered=True),
    "v2-top": PublishedSet("ImageNet-V2 top", "imagenetv2-top-images-format-val", 10_000, 499_500, 1000, numbered=True),
    "sketch": PublishedSet("ImageNet-Sketch", "sketch", 50_889, 499_500, 1000),
    "real": PublishedSet("ImageNet ReaL", "val", 46_837, 499_500, 1000),
    "c": PublishedSet("ImageNet-C", "val", 50_000, 499_500, 1000),
}


@dataclass(frozen=True)
class SetFolder:
    """The class folders of a set, by ascending ImageNet index.

    Args:
        path: the set's folder.
        names: of the class folders.
        ids: the ImageNet id of each, which is its name unless that is the class index.
    """

    path: Path
    names: tuple[str, ...]
    ids: tuple[str, ...]


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
    if PUBLISHED[key].numbered and all(name.isdecimal() for name in found.folders):
        return read_numbers(path, found.folders)
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
        return SetFolder(path, tuple(found.folders), tuple(found.folders))
    lacking = [name for name in only if name not in found.folders]
    if lacking:
        raise DnaError(f"{path}: no folder {lacking[0]}, which imagenet-o has ({len(lacking)} of {len(only)} are missing)")
    return SetFolder(path, tuple(only), tuple(only))


def read_numbers(path: Path, names: Sequence[str]) -> SetFolder:
    """Class folders whose names are class indices, in the order of the numbers: as texts, 10 comes before 2.

    Raises:
        DnaError: a number is no class index, or two folders have the same.

    Source: ImageNet-V2's archives (modestyachts/ImageNetV2#10: sorted as texts, nearly every label is wrong).
    """
    known = known_ids()
    ordered = sorted(names, key=int)
    wrong = [name for name in ordered if int(name) >= len(known)]
    if wrong:
        raise DnaError(f"{path}: folder {wrong[0]} is no class index of ImageNet-1k, 0 to {len(known) - 1}")
    twice = [name for before, name in pairwise(ordered) if int(before) == int(name)]
    if twice:
        raise DnaError(f"{path}: two folders are class {int(twice[0])}, one of them {twice[0]}")
    return SetFolder(path, tuple(ordered), tuple(known[int(name)] for name in ordered))


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
    indices = [place[name] for name in folder.ids]
    assert indices == sorted(set(indices)), "sorted ids are in class order"
    if sum(indices) != published.index_sum:
        other = next((entry.folder for entry in PUBLISHED.values() if entry.index_sum == sum(indices)), None)
        told = f"they are those of {other}" if other else f"their indices sum to {sum(indices)}, not {published.index_sum}"
        raise DnaError(f"{folder.path}: {published.folders} class folders, but not {published.folder}'s: {told}")


def list_pictures(path: Path, name: str) -> list[str]:
    """Paths of the pictures of a class folder, relative to the set's folder, sorted."""
    return sorted(found for paths, _ in walk_pictures(path / name, f"{name}/") for found in paths)
