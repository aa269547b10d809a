"""CIFAR-10 and CIFAR-100 from their python archives, packed or unpacked, with md5 sums checked."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dna_suite.data.array_pickles import read_pickle
from dna_suite.data.resident import Resident
from dna_suite.data.small import SmallPictures
from dna_suite.data.sums import require_md5
from dna_suite.errors import DnaError

SIDE = 32


class Archive(NamedTuple):
    """What is published of a CIFAR archive.

    Args:
        packed: name of the archive.
        base: name of the folder in it.
        files: train, test or meta -> names of its files.
        labels: key of the labels in a file.
        names: key of the class names in the file of meta.
        sums: name -> md5 sum of the archive and of every file.
    """

    packed: str
    base: str
    files: Mapping[str, tuple[str, ...]]
    labels: str
    names: str
    sums: Mapping[str, str]


class Content(NamedTuple):
    """What a CIFAR archive holds: class names, and the samples of train and test."""

    classes: list[str]
    samples: dict[str, Resident]


class CIFAR10(SmallPictures):
    """CIFAR-10, 50,000 / 10,000 for train / test; val is held out of train.

    The archive is read where it lies: nothing is unpacked and nothing is written.

    Source: Krizhevsky 2009. Normalisation as in Fibottention's recipe.
    """

    layout: ClassVar[str] = (
        "  cifar-10-python.tar.gz\n  or cifar-10-batches-py/ with data_batch_1 to data_batch_5, test_batch and batches.meta"
    )
    torchvision_name: ClassVar[str] = "CIFAR10"
    labels: ClassVar[str] = "labels"
    downloads: ClassVar[bool] = True
    own_val: ClassVar[bool] = False
    own_size: ClassVar[int] = SIDE
    own_mean: ClassVar[tuple[float, float, float]] = (0.4914, 0.4822, 0.4465)
    own_std: ClassVar[tuple[float, float, float]] = (0.2023, 0.1994, 0.2010)
    own_shift: ClassVar[int] = 4

    @cached_property
    def content(self) -> Content:
        """The whole set, read once.

        Raises:
            DnaError: a file is missing, is not the published one, or holds something else.
        """
        root, archive = self.folder(), published_archive(self.torchvision_name, self.labels)
        remedy = f"Move it away and fetch it again: dna data download {self.name} {root}"
        folder = next((place for place in (root / archive.base, root) if (place / archive.files["meta"][0]).is_file()), None)
        if folder is not None:
            found = dict(read_unpacked(folder, archive, remedy))
        elif (root / archive.packed).is_file():
            require_md5(root / archive.packed, archive.sums, remedy)
            found = dict(read_packed(root / archive.packed, archive))
        else:
            raise DnaError(f"{root}: neither {archive.packed} nor {archive.base} in it. {self.ways_to_get(root)}")
        classes = [str(name) for name in found[archive.files["meta"][0]][archive.names]]
        samples = {split: join_batches([found[name] for name in archive.files[split]], archive) for split in ("train", "test")}
        for split, resident in samples.items():
            if len(resident.labels) and not 0 <= resident.labels.min() <= resident.labels.max() < len(classes):
                raise DnaError(f"{root}: a label in {split} is none of 0 to {len(classes) - 1}")
        return Content(classes, samples)

    @property
    def classes(self) -> list[str]:
        """The class names that the archive gives, in label order."""
        return self.content.classes

    def read(self, split: str, role: str) -> Resident:
        """All samples of train or test."""
        return self.content.samples[split]


class CIFAR100(CIFAR10):
    """CIFAR-100 with its fine labels, 50,000 / 10,000 for train / test; val is held out of train.

    The archive is read where it lies: nothing is unpacked and nothing is written.

    Source: Krizhevsky 2009. Normalisation as in Fibottention's recipe.
    """

    layout: ClassVar[str] = "  cifar-100-python.tar.gz\n  or cifar-100-python/ with train, test and meta"
    torchvision_name: ClassVar[str] = "CIFAR100"
    labels: ClassVar[str] = "fine_labels"
    own_mean: ClassVar[tuple[float, float, float]] = (0.5071, 0.4865, 0.4409)
    own_std: ClassVar[tuple[float, float, float]] = (0.2009, 0.1984, 0.2023)


def published_archive(torchvision_name: str, labels: str) -> Archive:
    """Names and md5 sums of a CIFAR archive as torchvision records them."""
    import torchvision.datasets

    theirs = getattr(torchvision.datasets, torchvision_name)
    meta = theirs.meta
    files = {
        "train": tuple(name for name, _ in theirs.train_list),
        "test": tuple(name for name, _ in theirs.test_list),
        "meta": (meta["filename"],),
    }
    sums = {**dict(theirs.train_list), **dict(theirs.test_list), meta["filename"]: meta["md5"], theirs.filename: theirs.tgz_md5}
    return Archive(theirs.filename, theirs.base_folder, files, labels, meta["key"], sums)


def read_unpacked(folder: Path, archive: Archive, remedy: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, content) of every file of an unpacked archive.

    Raises:
        DnaError: a file is missing or changed.
    """
    for name in (name for names in archive.files.values() for name in names):
        path = folder / name
        if not path.is_file():
            raise DnaError(f"{folder}: no file {name}. {remedy}")
        require_md5(path, archive.sums, remedy)
        yield name, read_pickle(path.read_bytes(), str(path))


def read_packed(path: Path, archive: Archive) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, content) of every file of a packed archive.

    Raises:
        DnaError: a file is missing.
    """
    wanted = {f"{archive.base}/{name}": name for names in archive.files.values() for name in names}
    with tarfile.open(path, "r:gz") as members:
        for member in members:
            file = members.extractfile(member) if member.name in wanted else None
            if file is not None:
                yield wanted.pop(member.name), read_pickle(file.read(), f"{path}:{member.name}")
    if wanted:
        raise DnaError(f"{path}: no {next(iter(wanted))} in it")


def join_batches(parts: list[dict[str, Any]], archive: Archive) -> Resident:
    """The samples of the batch files of one split; rows of `data` are red, green and blue planes of 32 x 32."""
    try:
        pictures = np.concatenate([part["data"] for part in parts]).reshape(-1, 3, SIDE, SIDE)
        labels = np.array([label for part in parts for label in part[archive.labels]], dtype=np.int64)
    except (KeyError, TypeError, ValueError) as problem:
        raise DnaError(f"{archive.base}: no batches of 32 x 32 pictures with {archive.labels} ({problem})") from None
    if pictures.dtype != np.uint8 or len(labels) != len(pictures):
        raise DnaError(f"{archive.base}: {len(pictures)} {pictures.dtype} pictures with {len(labels)} labels")
    return Resident(pictures, labels)
