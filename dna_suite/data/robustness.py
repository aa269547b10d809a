"""ImageNet-A, -R and -O, and the part of ImageNet's val that -O is set against, as one test part for one model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from dna_suite.data.images import IMAGENET_MEAN, IMAGENET_STD, ImageData
from dna_suite.data.robustness_folders import PUBLISHED, SetFolder, find_set, known_ids, list_pictures, require_published
from dna_suite.data.samples import Paths, PictureSamples
from dna_suite.data.toy_pictures import SYNSETS
from dna_suite.errors import DnaError

# The order of the test part; val is the known part that O is set against.
SETS = ("a", "r", "o", "val")
DIGITS = [str(digit) for digit in range(10)]


class RobustnessSets(ImageData):
    """The three sets as their archives unpack, for a model whose classes are ImageNet's.

    A folder's name is the ImageNet id (wnid) of its class; it is looked up in the class list of the model, so that the order of
    the model's classes is of no account. A label is the class index of the model. Of val only the folders that O has are read,
    which for O are the classes that a model takes its pictures for. `sets` [n] int64 says for each sample of the test part which
    of `SETS` it is from; `columns` has for each set the model's class indices of its folders, by ascending ImageNet index.

    For a model of the ten digits (class names "0" to "9") the toy twin's folders stand for digits: digit d is `SYNSETS[d]`.

    Args:
        root: folder with imagenet-a, imagenet-r, imagenet-o and val; None is `data/robustness`, see `Data`.
        val: ImageNet's validation folder, with class folders; None is `val` in the root.
        subset_ok: take any number of classes, folders and pictures; for toy twins, and named wherever results are shown.
        eval_batch: samples per evaluation batch.
        toy: read the toy twin of the sets, which is made where it is missing.

    Source: Hendrycks et al., ImageNet-A and -O (2021) and ImageNet-R (2021), with the class lists of their archives; folder order
        as label gives wrong numbers (huggingface/pytorch-image-models#2456).
    """

    one_set: ClassVar[bool] = False
    layout: ClassVar[str] = (
        "  imagenet-a/WNID/NAME.jpg, imagenet-r/WNID/NAME.jpg, imagenet-o/WNID/NAME.JPEG   the archives, unpacked\n"
        "  val/WNID/NAME.JPEG   ImageNet's validation pictures in class folders (or data.val)"
    )

    def __init__(
        self,
        name: str = "robustness",
        root: str | None = None,
        val: str | None = None,
        subset_ok: bool = False,
        eval_batch: int = 64,
        workers: int = 2,
        toy: bool = False,
        size: int = 224,
        crop_ratio: float = 0.9,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
        max_pixels: int = 178_956_970,
        eval_backend: Literal["torch", "pil"] = "torch",
    ) -> None:
        super().__init__(
            name,
            root,
            eval_batch,
            eval_batch,
            workers,
            toy,
            size=size,
            crop_ratio=crop_ratio,
            mean=mean,
            std=std,
            max_pixels=max_pixels,
            eval_backend=eval_backend,
        )
        self.val_root, self.subset_ok = val, subset_ok
        self._classes: list[str] | None = None
        self._folders: dict[str, SetFolder] = {}

    @property
    def classes(self) -> list[str]:
        """The model's class names; ImageNet's 1,000 ids where no model has said its own."""
        return known_ids() if self._classes is None else self._classes

    def take_classes(self, classes: Sequence[str] | None) -> None:
        """Look folders up in a model's class list; None is ImageNet's 1,000 ids in their usual order."""
        self._classes = None if classes is None else list(classes)
        self._folders.clear()
        self._samples.clear()
        for known in ("ids", "columns"):
            self.__dict__.pop(known, None)

    @property
    def splits(self) -> tuple[str, ...]:
        """There is a test part only."""
        return ("test",)

    @cached_property
    def ids(self) -> dict[str, int]:
        """ImageNet id -> class index of the model."""
        names = list(SYNSETS) if self.toy and self.classes == DIGITS else self.classes
        return {name: column for column, name in enumerate(names)}

    @property
    def folders(self) -> dict[str, SetFolder]:
        """The class folders of each of `SETS`, checked.

        Raises:
            DnaError: a set is missing, is not what was published, or has a class that the model has not.
        """
        if not self._folders:
            root = self.find_root()
            found = {key: find_set(root / PUBLISHED[key].folder, key) for key in ("a", "r", "o")}
            val = Path(self.val_root).expanduser() if self.val_root else root / "val"
            found["val"] = find_set(val, "val", only=found["o"].names)
            if not self.subset_ok and len(self.classes) != len(known_ids()):
                raise DnaError(f"the model has {len(self.classes)} classes, the protocol is for 1,000: {SUBSET_OK}")
            for key, folder in found.items():
                if not self.subset_ok:
                    require_published(key, folder, SUBSET_OK)
                lacking = [name for name in folder.names if name not in self.ids]
                if lacking:
                    raise DnaError(f"{folder.path}: the model's class list has no {lacking[0]} ({len(lacking)} such folders)")
            self._folders = found
        return self._folders

    def find_root(self) -> Path:
        """The folder of the sets.

        Raises:
            DnaError: there is none, or an archive in its place.
        """
        if not self.toy and self.root and Path(self.root).expanduser().is_file():
            raise DnaError(f"data.root: {self.root} is a file: unpack the archives into a folder and name that")
        return self.folder()

    @cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Class indices of the model that each set's softmax is over, int64, by ascending ImageNet index."""
        return {key: np.array([self.ids[name] for name in folder.names]) for key, folder in self.folders.items()}

    def divide(self, split: str) -> PictureSamples:
        """The test part.

        Raises:
            DnaError: another split is asked for.
        """
        if split != "test":
            raise DnaError(f"data set {self.name} has no {split} part: it is for dna test")
        return self.read(split, split)

    def read(self, split: str, role: str) -> PictureSamples:
        """All pictures of the four sets, one set after the other, by folder and name."""
        root = self.find_root()
        paths: list[str] = []
        labels: list[int] = []
        sizes: list[int] = []
        for key in SETS:
            folder = self.folders[key]
            prefix = os.path.relpath(folder.path, root)
            found = [(f"{prefix}/{path}", self.ids[name]) for name in folder.names for path in list_pictures(folder.path, name)]
            if not self.subset_ok and len(found) != PUBLISHED[key].pictures:
                raise DnaError(f"{folder.path}: {len(found):,} pictures, published {PUBLISHED[key].pictures:,}: {SUBSET_OK}")
            if not found:
                raise DnaError(f"{folder.path}: no picture in its class folders")
            paths += [path for path, _ in found]
            labels += [label for _, label in found]
            sizes.append(len(found))
        self.sets = np.repeat(np.arange(len(SETS)), sizes)
        transform = self.transform_as(role)
        return PictureSamples(root, Paths(paths), np.array(labels), transform, self.size, self.max_pixels, self.on_error)

    def counts(self) -> dict[str, int]:
        """Pictures of each set; of val those in O's folders."""
        self.samples("test")
        return {key: int((self.sets == number).sum()) for number, key in enumerate(SETS)}

    def origin(self, split: str) -> str:
        """The folders that the test part is read from."""
        return ", ".join(folder.path.name for folder in self.folders.values())

    def position(self) -> dict[str, int]:
        """There is no training to go on with."""
        return {"seed": self.seed, "length": len(self.samples("test").labels)}

    def augmentation(self) -> dict[str, Any]:
        """There are no training pictures."""
        return {}

    def protocol(self) -> Mapping[str, Any]:
        """What a record says about how the sets were read, as plain values."""
        return {
            "classes": len(self.classes),
            "folders": {key: len(folder.names) for key, folder in self.folders.items()},
            "subset_ok": self.subset_ok,
        }


SUBSET_OK = "data.subset_ok: true takes it as it is, and then no number compares with a published one"
