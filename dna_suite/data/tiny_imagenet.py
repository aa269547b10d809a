"""Tiny-ImageNet: 64 x 64 pictures of 200 classes in folders, with a file of annotations for val."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from dna_suite.data.folders import Folder
from dna_suite.data.resident import Decoded, Resident
from dna_suite.data.samples import Paths, PictureSamples
from dna_suite.data.small import SmallPictures
from dna_suite.errors import DnaError, UnknownName

SIDE = 64
ANNOTATIONS = "val_annotations.txt"


class TinyImageNet(SmallPictures):
    """Tiny-ImageNet, 100,000 / 10,000 for train / val in 200 classes; its test part has no labels, so test is val.

    Class names are the sorted names of the folders in `train`. At 64 pixels the pictures are decoded once, before the first
    batch, and stay in memory (1.4 GB); at another size each is decoded when it is needed.

    Source: Stanford CS231N, tiny-imagenet-200. Normalisation is ImageNet's, as in Fibottention's recipe.
    """

    layout: ClassVar[str] = (
        "  train/CLASS/images/NAME.JPEG\n"
        "  val/images/NAME.JPEG and val/val_annotations.txt of lines NAME.JPEG<tab>CLASS<tab>box\n"
        "  (all of it may lie in tiny-imagenet-200/)"
    )
    own_size: ClassVar[int] = SIDE
    own_shift: ClassVar[int] = 8

    @cached_property
    def top(self) -> Path:
        """The folder that holds train and val."""
        root = self.folder()
        for place in (root, root / "tiny-imagenet-200"):
            if (place / "train").is_dir():
                return place
        raise DnaError(f"{root}: no folder train. {self.ways_to_get(root)}")

    @cached_property
    def _classes(self) -> list[str]:
        found = Folder(self.top / "train").folders
        if not found:
            raise DnaError(f"{self.top / 'train'} holds no class folder. {self.ways_to_get(self.top)}")
        return found

    @property
    def classes(self) -> list[str]:
        """The names of the class folders in train, sorted."""
        return list(self._classes)

    def origin(self, split: str) -> str:
        """What a split is read from; the pictures of test have no labels, so it is val."""
        return "train" if split == "train" else "val"

    def read(self, split: str, role: str) -> Resident | PictureSamples:
        """All samples of train or val, in memory where whole batches are gathered."""
        folder = self.top / self.origin(split)
        found = self.list_train(folder) if split == "train" else self.list_val(folder)
        names, labels = zip(*found, strict=True) if found else ((), ())
        files = PictureSamples(
            folder,
            Paths(names),
            np.array(labels, dtype=np.int64),
            self.transform_as(role),
            self.size,
            self.max_pixels,
            self.on_error,
        )
        return Resident(Decoded(files, SIDE), files.labels) if self.in_batches(role) else files

    def list_train(self, folder: Path) -> list[tuple[str, int]]:
        """(path, label) of every training picture, by class and name.

        Raises:
            DnaError: a class has no picture.
        """
        found: list[tuple[str, int]] = []
        for label, name in enumerate(self.classes):
            inner = folder / name / "images"
            pictures = Folder(inner).pictures if inner.is_dir() else []
            if not pictures:
                raise DnaError(f"{folder}: no picture in {name}/images. Expected:\n{self.layout}")
            found += [(f"{name}/images/{picture}", label) for picture in pictures]
        return found

    def list_val(self, folder: Path) -> list[tuple[str, int]]:
        """(path, label) of every validation picture, in the order of the annotations.

        Raises:
            DnaError: the file is missing, a line has another shape or class, or a picture is not there.
        """
        file = folder / ANNOTATIONS
        if not file.is_file() or not (folder / "images").is_dir():
            what = "folder images" if file.is_file() else f"file {ANNOTATIONS}"
            raise DnaError(f"{folder}: no {what}. Expected:\n{self.layout}")
        label_of = {name: label for label, name in enumerate(self.classes)}
        there = set(Folder(folder / "images").pictures)
        found: dict[str, int] = {}
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            fields = line.split("\t")
            if not line.strip():
                continue
            if len(fields) < 2:
                raise DnaError(f"{file}:{number}: a line is NAME.JPEG<tab>CLASS<tab>box")
            name, label = fields[0], fields[1].strip()
            if label not in label_of:
                raise UnknownName("class", label, self.classes, f"{file}:{number}")
            if name in found or name not in there:
                raise DnaError(f"{file}:{number}: {name} {'stands twice' if name in found else 'is not in images'}")
            found[name] = label_of[label]
        if len(found) != len(there):
            raise DnaError(f"{file}: {len(there) - len(found)} pictures have no line, first {min(there - found.keys())}")
        return [(f"images/{name}", label) for name, label in found.items()]
