"""Toy twins: a data set's own layout on disk, in miniature, made from the handwritten digits that the package ships."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from dna_suite.data.toy_arrays import write_cifar10, write_cifar100, write_fashion_mnist
from dna_suite.data.toy_pictures import write_cars, write_imagenet, write_tiny_imagenet
from dna_suite.data.toy_robustness import write_robustness
from dna_suite.errors import DnaError, UnknownName

WRITERS: dict[str, Callable[[Path], None]] = {
    "imagenet": write_imagenet,
    "cifar10": write_cifar10,
    "cifar100": write_cifar100,
    "cars": write_cars,
    "tiny_imagenet": write_tiny_imagenet,
    "fashion_mnist": write_fashion_mnist,
    "robustness": write_robustness,
}


def write_toy(name: str, folder: str | Path) -> Path:
    """Write the toy twin of a data set; the folder appears whole or not at all.

    Args:
        name: data set.
        folder: where it goes; it must be missing or empty.

    Raises:
        DnaError: there is no toy of that name, or the folder holds something.
    """
    folder = Path(folder).expanduser()
    if name not in WRITERS:
        raise UnknownName("toy data set", name, WRITERS)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DnaError(f"{folder} exists and is not empty: name a new folder for the toy set")
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        WRITERS[name](part)
        part.chmod(0o777 & ~current_umask())
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def make_twin(name: str, folder: Path) -> Path:
    """The toy twin of a data set, written where it is missing; several processes may ask at once."""
    if not folder.is_dir():
        try:
            write_toy(name, folder)
        except (OSError, DnaError):
            if not folder.is_dir():
                raise
    return folder


def current_umask() -> int:
    """The permission bits that new folders of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
