"""ImageNet-1k, and any other set of pictures in its layout: class folders, or a flat evaluation folder with a label file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from dna_suite.data.images import ImageData
from dna_suite.data.samples import Paths, PictureSamples
from dna_suite.data.shard_index import COMPRESSED
from dna_suite.data.split_tree import FolderTree, ShardTree, open_tree
from dna_suite.errors import DnaError, UnknownName

FOLDERS = {"train": ("train",), "val": ("val", "validation"), "test": ("test",)}


class Listing(NamedTuple):
    """Pictures of one split: folder, paths relative to it, labels [n]."""

    folder: Path
    paths: Paths
    labels: np.ndarray


class ImageNet(ImageData):
    """Pictures in ImageNet's layout.

    Each split is a folder of class folders, or of uncompressed tar shards that hold the same: members CLASS/NAME.JPEG, or one
    archive CLASS.tar for each class with members CLASS_NUMBER.JPEG, as in ILSVRC2012_img_train.tar. Pictures have the same order
    and keys either way. Class names are the sorted names of the folders in `train`; `val` (or `validation`) and `test` are mapped
    to them by name. Without a usable `test` folder (ImageNet's own has no labels) the test split is `val`. Hidden entries and
    those that operating systems make are ignored.

    Args:
        name: data set, a key of `catalogue.DATASETS`.
        allow_empty: let a class folder of `train` hold no picture; the class keeps its index.
        images: the other arguments of `ImageData`.
    """

    one_set: ClassVar[bool] = False
    layout: ClassVar[str] = (
        "  train/CLASS/NAME.JPEG   or   train/*.tar, uncompressed, with members CLASS/NAME.JPEG\n"
        "  val/CLASS/NAME.JPEG   or   val/NAME.JPEG with a file val_labels.csv of lines NAME.JPEG,CLASS   or   val/*.tar\n"
        "  test/ (optional, as val)"
    )

    def __init__(self, name: str = "imagenet", allow_empty: bool = False, **images: Any) -> None:
        super().__init__(name, **images)
        self.allow_empty = allow_empty
        self._classes: list[str] | None = None
        self._listings: dict[str, Listing] = {}
        self._trees: dict[Path, FolderTree | ShardTree] = {}

    def folder(self) -> Path:
        """The data set's folder.

        Raises:
            DnaError: there is none, or an archive in its place.
        """
        if not self.toy and self.root and Path(self.root).expanduser().is_file():
            raise DnaError(f"data.root: {self.root} is a file; give a folder with train and val, archives unpacked into these")
        return super().folder()

    @property
    def classes(self) -> list[str]:
        """The names of the class folders in train, sorted.

        Raises:
            DnaError: there is no train folder, or no class folder in it.
        """
        if self._classes is None:
            train = self.split_folder("train")
            self._classes = self.tree(train).folders
            if not self._classes:
                raise DnaError(f"{train} holds no class folder. Expected in {self.folder()}:\n{self.layout}")
        return self._classes

    def split_folder(self, split: str) -> Path:
        """The folder of a split; the test split is `val` where there is no test folder with labels.

        Raises:
            DnaError: the folder is missing; the message shows the layout.
        """
        root = self.folder()
        for name in FOLDERS[split]:
            folder = root / name
            if folder.is_dir() and (split != "test" or self.tree(folder).folders or find_label_file(root, folder, split)):
                return folder
        if split == "test":
            return self.split_folder("val")
        archives = sorted(entry.name for entry in root.iterdir() if entry.name.endswith((".tar", *COMPRESSED)))
        if archives:
            name = FOLDERS[split][0]
            how = f"mkdir {name}; tar -xf ARCHIVE -C {name}; class archives inside are read as they are"
            raise DnaError(f"{root}: no folder {name}, but {', '.join(archives[:4])}: unpack the archive of {name} ({how})")
        raise DnaError(f"{root}: no folder {' or '.join(FOLDERS[split])}. Expected:\n{self.layout}")

    def origin(self, split: str) -> str:
        """The folder that a split is read from, as a name inside the root."""
        return self.split_folder(split).name

    def list_split(self, split: str) -> Listing:
        """Paths and labels of a split, ordered by class, then name.

        Raises:
            DnaError: an empty class folder in train, a class that train does not have, a flat folder without labels.
        """
        if split not in self._listings:
            folder = self.split_folder(split)
            tree = self.tree(folder)
            flat = split != "train" and bool(tree.pictures) and not tree.folders
            # The test split may be val's folder, with val's label file.
            owner = next(name for name, folders in FOLDERS.items() if folder.name in folders)
            found, ignored = self.list_flat(tree, owner) if flat else self.list_classes(tree)
            names, labels = zip(*found, strict=True) if found else ((), ())
            if ignored:
                self.note(f"{folder}: {ignored} hidden, system-made or non-picture entries ignored", rank_zero_info)
            self._listings[split] = Listing(folder, tree.paths(names), np.array(labels, dtype=np.int64))
            self.check_classes(split)
        return self._listings[split]

    def tree(self, folder: Path) -> FolderTree | ShardTree:
        """The pictures in a split's folder, as files or in shards, looked at once."""
        if folder not in self._trees:
            self._trees[folder] = open_tree(folder)
            if self._trees[folder].note:
                self.note(self._trees[folder].note)
        return self._trees[folder]

    def list_classes(self, tree: FolderTree | ShardTree) -> tuple[list[tuple[str, int]], int]:
        """(path, label) of every picture in the class folders of a split, and the number of ignored entries."""
        label_of = {name: label for label, name in enumerate(self.classes)}
        found: list[tuple[str, int]] = []
        ignored = tree.ignored + len(tree.pictures)
        for name in tree.folders:
            if name not in label_of:
                raise UnknownName("class folder", name, self.classes, str(tree.path))
            for paths, others in tree.walk(name):
                found += [(path, label_of[name]) for path in paths]
                ignored += others
        return found, ignored

    def list_flat(self, tree: FolderTree | ShardTree, split: str) -> tuple[list[tuple[str, int]], int]:
        """(path, label) of every picture that lies directly in a split's folder, with labels from the label file."""
        file = find_label_file(self.folder(), tree.path, split)
        if file is None:
            name = tree.path.name
            raise DnaError(
                f"{tree.path}: {len(tree.pictures)} pictures, but no class folders, and no {split}_labels.csv in or beside it. "
                f"Accepted: {name}/CLASS/NAME.JPEG, or {name}/NAME.JPEG and lines NAME.JPEG,CLASS in {split}_labels.csv"
            )
        labels = read_labels(file, self.classes)
        there = set(tree.pictures)
        missing = [name for name in labels if name not in there]
        unlabelled = [name for name in tree.pictures if name not in labels]
        if missing or unlabelled:
            what = f"{len(missing)} pictures are missing" if missing else f"{len(unlabelled)} pictures have no line"
            raise DnaError(f"{file}: {what}, {(missing or unlabelled)[0]!r} is the first")
        return sorted(((name, labels[name]) for name in tree.pictures), key=lambda pair: (pair[1], pair[0])), tree.ignored

    def check_classes(self, split: str) -> None:
        """Refuse an empty class in train, warn once of classes that an evaluation split lacks."""
        labels = self._listings[split].labels
        present = np.bincount(labels, minlength=len(self.classes)) > 0
        empty = [name for name, there in zip(self.classes, present, strict=True) if not there]
        if not empty or len(labels) == 0:
            return
        listed = ", ".join(empty[:10]) + (f" and {len(empty) - 10} more" if len(empty) > 10 else "")
        folder = self._listings[split].folder
        if split == "train" and not self.allow_empty:
            raise DnaError(f"{folder}: no picture in class folder {listed} (data.allow_empty: true keeps such a class)")
        self.note(f"{folder}: no picture of class {listed}", rank_zero_warn)

    def read(self, split: str, role: str) -> PictureSamples:
        """All samples of train, val or test, with the transform of what they serve as."""
        folder, paths, labels = self.list_split(split)
        return PictureSamples(folder, paths, labels, self.transform_as(role), self.size, self.max_pixels, self.on_error)


def find_label_file(root: Path, folder: Path, split: str) -> Path | None:
    """The label file of a flat folder, beside it or in it."""
    places = [root / f"{split}_labels.csv", folder / f"{split}_labels.csv"]
    return next((place for place in places if place.is_file()), None)


def read_labels(file: Path, classes: list[str]) -> dict[str, int]:
    """File name -> label, from lines `name,class`; a first line that says just that is skipped.

    Raises:
        DnaError: a line has another shape, a class is unknown, a name stands twice.
    """
    label_of = {name: label for label, name in enumerate(classes)}
    labels: dict[str, int] = {}
    with file.open(newline="", encoding="utf-8-sig") as lines:
        for number, row in enumerate(csv.reader(lines), start=1):
            fields = [field.strip() for field in row]
            if not any(fields) or (number == 1 and fields == ["name", "class"]):
                continue
            if len(fields) != 2:
                raise DnaError(f"{file}:{number}: {len(fields)} fields; a line is name,class")
            name, label = fields
            if label not in label_of:
                raise UnknownName("class", label, classes, f"{file}:{number}")
            if name in labels:
                raise DnaError(f"{file}:{number}: {name!r} stands twice")
            labels[name] = label_of[label]
    return labels
