"""Pictures without labels: every picture under a folder, or one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from dna_suite.data.folders import walk_pictures
from dna_suite.data.pictures import SUFFIXES, UnreadablePicture, read_picture
from dna_suite.data.samples import Paths, Transform, blank
from dna_suite.errors import DnaError


class PictureListing(Dataset[dict[str, Any]]):
    """The pictures under a folder, sorted by path, or one picture file; a sample is `image` uint8 [3, size, size] and `path`.

    Args:
        source: folder, searched with everything below it, or a file.
        transform: decoded picture to the model's size.
        size: side of the result, pixels.
        max_pixels: a picture with more is unreadable.
        on_error: raise, or skip: an unreadable file gives a black picture with `counted` False and its path as `skipped`.

    Raises:
        DnaError: there is no such file or folder, or no picture in it.
    """

    def __init__(self, source: str, transform: Transform, size: int, max_pixels: int, on_error: str) -> None:
        self.transform, self.size, self.max_pixels, self.on_error = transform, size, max_pixels, on_error
        self.paths = Paths(list_pictures(Path(source).expanduser()))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        path = self.paths[index]
        try:
            return {"image": self.transform(read_picture(path, self.max_pixels)), "path": path}
        except UnreadablePicture:
            if self.on_error == "raise":
                raise
            return {"path": path, **blank(self.size, path)}


def list_pictures(source: Path) -> list[str]:
    """The paths of all pictures under a folder, sorted; of a file, itself."""
    if source.is_file():
        return [str(source)]
    if not source.is_dir():
        raise DnaError(f"--input {source}: no such file or folder")
    found = sorted(path for paths, _ in walk_pictures(source, f"{source}/") for path in paths)
    if not found:
        raise DnaError(f"--input {source}: no picture in it or below it (names ending in {', '.join(sorted(SUFFIXES))})")
    return found
