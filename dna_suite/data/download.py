"""Public data sets fetched where the user asks for it: md5 checked, and each file whole or not at all."""

from __future__ import annotations

import os
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dna_suite.data.sums import md5_of
from dna_suite.errors import DnaError, UnknownName

TIMEOUT = 60
PIECE = 1 << 20

Files = list[tuple[str, str, str]]


def cifar_files(name: str) -> Files:
    """(address, file name, md5) of a CIFAR archive as torchvision records them."""
    import torchvision.datasets

    theirs: Any = getattr(torchvision.datasets, name)
    return [(theirs.url, theirs.filename, theirs.tgz_md5)]


def fashion_files() -> Files:
    """(address, file name, md5) of Fashion-MNIST's four files as torchvision records them."""
    from torchvision.datasets import FashionMNIST

    return [(FashionMNIST.mirrors[0] + name, name, total) for name, total in FashionMNIST.resources]


PUBLIC: dict[str, Callable[[], Files]] = {
    "cifar10": lambda: cifar_files("CIFAR10"),
    "cifar100": lambda: cifar_files("CIFAR100"),
    "fashion_mnist": fashion_files,
}


def download(name: str, folder: str | Path, tell: Callable[[str], None]) -> list[Path]:
    """Fetch a public data set; a file that is there already and whole is kept.

    Args:
        name: a key of `PUBLIC`.
        folder: where the files go; made where it is missing.
        tell: takes one line per file.

    Returns:
        The files.

    Raises:
        DnaError: there is no public archive of that name, it cannot be fetched, or what came has another md5 sum.
    """
    if name not in PUBLIC:
        raise UnknownName("data set with a public archive", name, PUBLIC)
    folder = Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for address, file, total in PUBLIC[name]():
        path = folder / file
        if path.is_file() and md5_of(path) == total:
            tell(f"{path}: there already")
        elif path.exists():
            raise DnaError(f"{path} is there with another md5 sum than {total}: move it away first")
        else:
            tell(f"{address} -> {path}")
            fetch(address, path, total)
        paths.append(path)
    return paths


def fetch(address: str, path: Path, total: str) -> None:
    """One file, which appears under its name when its md5 sum is right.

    Raises:
        DnaError: it cannot be fetched, or is another file than was published.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer, part.open("wb") as file:
            shutil.copyfileobj(answer, file, PIECE)
        found = md5_of(part)
        if found != total:
            raise DnaError(f"{address}: md5 {found}, expected {total}; nothing was kept")
        os.replace(part, path)
    except OSError as problem:
        raise DnaError(f"{address}: {getattr(problem, 'reason', problem)}; fetch it by hand to {path}") from None
    finally:
        part.unlink(missing_ok=True)
