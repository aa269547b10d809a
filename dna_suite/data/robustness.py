"""Sets that test a classifier of ImageNet beyond val: A, R and O, V2, Sketch, ReaL and C, as one test part for one model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from dna_suite.data.corruptions import KINDS, SEVERITIES, Corruption, describe_corruptions, find_corrupt, require_corruptions
from dna_suite.data.images import IMAGENET_MEAN, IMAGENET_STD, ImageData
from dna_suite.data.parts import Parts, pad_labels
from dna_suite.data.real_labels import labels_of, read_real_labels
from dna_suite.data.robustness_folders import PUBLISHED, SetFolder, find_set, known_ids, list_pictures, require_published
from dna_suite.data.samples import Paths, PictureSamples
from dna_suite.data.shown_pictures import AS_IT_IS, ShownPictures
from dna_suite.data.toy_pictures import SYNSETS
from dna_suite.errors import DnaError, UnknownName

# In the order of the test part. "val" comes with "o": the known pictures that it is set against.
SETS = tuple(PUBLISHED)
CHOICES = tuple(key for key in SETS if key != "val")
OF_VAL = ("val", "real", "c")
REAL_LABELS = "real.json"
DIGITS = [str(digit) for digit in range(10)]
SUBSET_OK = "data.subset_ok: true takes it as it is, and then no number compares with a published one"


class RobustnessSets(ImageData):
    """The chosen sets as their archives unpack, for a model whose classes are ImageNet's.

    A class folder stands for an ImageNet id (wnid), which is its name, or in ImageNet-V2 has the place that its name says; it is
    looked up in the class list of the model, so that the order of the model's classes is of no account. A label is the class
    index of the model. For O the folders are the classes that a model takes its pictures for, and of val only those are read.

    The test part has `parts`, one for each set, and of c one for each corruption at each severity. `columns` has for each set the
    model's class indices of its folders, by ascending ImageNet index, over which its softmax is.

    For a model of the ten digits (class names "0" to "9") the toy twin's folders stand for digits: digit d is `SYNSETS[d]`.

    Args:
        root: folder with the sets' folders and val; None is `data/robustness`, see `Data`.
        val: ImageNet's validation folder, with class folders, which o, real and c read; None is `val` in the root.
        sets: which sets, of `CHOICES`.
        corruptions: of c, which kinds; None is all 15.
        severities: of c, which severities, 1 to 5.
        real_labels: of real, the label file; None is real.json in the root, or the copy that timm brings.
        subset_ok: take any number of classes, folders and pictures; for toy twins, and named wherever results are shown.
        eval_batch: samples per evaluation batch.
        toy: read the toy twin of the sets, which is made where it is missing.

    Source: Hendrycks et al., ImageNet-A and -O (2021) and ImageNet-R (2021), with the class lists of their archives; folder order
        as label gives wrong numbers (huggingface/pytorch-image-models#2456). Recht et al. 2019 (V2), Wang et al. 2019 (Sketch).
    """

    one_set: ClassVar[bool] = False
    layout: ClassVar[str] = (
        "  imagenet-a/WNID/NAME.jpg, imagenet-r/WNID/NAME.jpg, imagenet-o/WNID/NAME.JPEG   the archives, unpacked\n"
        "  val/WNID/NAME.JPEG   ImageNet's validation pictures in class folders (or data.val)\n"
        "  imagenetv2-matched-frequency-format-val/0..999/NAME.jpeg, sketch/WNID/NAME.JPEG   where data.sets names v2, sketch"
    )

    def __init__(
        self,
        name: str = "robustness",
        root: str | None = None,
        val: str | None = None,
        sets: tuple[str, ...] = ("a", "r", "o"),
        corruptions: tuple[str, ...] | None = None,
        severities: tuple[int, ...] = SEVERITIES,
        real_labels: str | None = None,
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
            root=root,
            batch=eval_batch,
            eval_batch=eval_batch,
            workers=workers,
            toy=toy,
            size=size,
            crop_ratio=crop_ratio,
            mean=mean,
            std=std,
            max_pixels=max_pixels,
            eval_backend=eval_backend,
        )
        for key in sets:
            if key not in CHOICES:
                raise UnknownName("set", key, CHOICES, prefix="data.sets ")
        if not sets:
            raise DnaError(f"data.sets is empty: of {', '.join(CHOICES)}")
        require_corruptions(KINDS if corruptions is None else corruptions, severities, size if "c" in sets else None)
        self.val_root, self.real_labels, self.subset_ok = val, real_labels, subset_ok
        self.sets = tuple(key for key in SETS if key in sets or (key == "val" and "o" in sets))
        kinds = KINDS if corruptions is None else [kind for kind in KINDS if kind in corruptions]
        self.corruptions = [Corruption(kind, severity) for kind in kinds for severity in sorted(set(severities))]
        self._classes: list[str] | None = None
        self._folders: dict[str, SetFolder] = {}
        self._parts: Parts | None = None

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
        """The class folders of each chosen set, checked.

        Raises:
            DnaError: a set is missing, is not what was published, or has a class that the model has not.
        """
        if not self._folders:
            root = self.find_root()
            found: dict[str, SetFolder] = {}
            for key in self.sets:
                place = Path(self.val_root).expanduser() if self.val_root and key in OF_VAL else root / PUBLISHED[key].folder
                found[key] = find_set(place, key, only=found["o"].names if key == "val" else None)
            if not self.subset_ok and len(self.classes) != len(known_ids()):
                raise DnaError(f"the model has {len(self.classes)} classes, the protocol is for 1,000: {SUBSET_OK}")
            for key, folder in found.items():
                if not self.subset_ok:
                    require_published(key, folder, SUBSET_OK)
                lacking = [name for name, known in zip(folder.names, folder.ids, strict=True) if known not in self.ids]
                if lacking:
                    raise DnaError(f"{folder.path}: the model's class list has no {lacking[0]} ({len(lacking)} such folders)")
            self._folders = found
        return self._folders

    def find_root(self) -> Path:
        """The folder of the sets.

        Raises:
            DnaError: there is none, or an archive in its place.
        """
        if self.val_root and not self.toy and not self.root and all(key in OF_VAL for key in self.sets):
            return Path(self.val_root).expanduser().parent
        if not self.toy and self.root and Path(self.root).expanduser().is_file():
            raise DnaError(f"data.root: {self.root} is a file: unpack the archives into a folder and name that")
        return self.folder()

    @cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Class indices of the model that each set's softmax is over, int64, by ascending ImageNet index."""
        return {key: np.array([self.ids[name] for name in folder.ids]) for key, folder in self.folders.items()}

    @property
    def parts(self) -> Parts:
        """What the samples of the test part are."""
        self.samples("test")
        assert self._parts is not None, "set where the samples are read"
        return self._parts

    def divide(self, split: str) -> ShownPictures:
        """The test part.

        Raises:
            DnaError: another split is asked for.
        """
        if split != "test":
            raise DnaError(f"data set {self.name} has no {split} part: it is for dna test")
        return self.read(split, split)

    def read(self, split: str, role: str) -> ShownPictures:
        """All pictures of the chosen sets, one set after the other, by folder and name; of c each under every corruption."""
        root = self.find_root()
        paths: list[str] = []
        labels: list[int] = []
        sizes: dict[str, int] = {}
        several: list[list[int]] = []
        for key in self.sets:
            found, also = self.list_set(key, root)
            paths += [path for path, _ in found]
            labels += [label for _, label in found]
            several += also
            sizes[key] = len(found)
        corruptions = self.corruptions if "c" in self.sets else []
        if corruptions:
            find_corrupt()
        pictures = PictureSamples(
            root, Paths(paths), np.array(labels), self.transform_as(role), self.size, self.max_pixels, self.on_error
        )
        plain = [key for key in self.sets if key != "c"]
        as_they_are, in_turns = sum(sizes[key] for key in plain), sizes.get("c", 0)
        turns = np.tile(np.arange(len(corruptions), dtype=np.int16), in_turns)
        shown = np.arange(len(paths)).repeat(np.repeat([1, len(corruptions)], [as_they_are, in_turns]))
        corrupted = np.concatenate([np.full(as_they_are, AS_IT_IS, dtype=np.int16), turns])
        samples = ShownPictures(pictures, shown, corrupted, corruptions, first=as_they_are)
        of = np.concatenate([np.arange(len(plain), dtype=np.int16).repeat([sizes[key] for key in plain]), len(plain) + turns])
        names = [*plain, *(f"c/{kind}/{severity}" for kind, severity in corruptions)]
        self._parts = Parts(self.sets, names, of, samples.labels, pad_labels(several))
        return samples

    def list_set(self, key: str, root: Path) -> tuple[list[tuple[str, int]], list[list[int]]]:
        """The pictures of a set: path below the root and label of each, and for real all its labels.

        Raises:
            DnaError: there is none, or another number than published.
        """
        folder = self.folders[key]
        prefix = os.path.relpath(folder.path, root)
        found = [
            (f"{prefix}/{path}", self.ids[known])
            for name, known in zip(folder.names, folder.ids, strict=True)
            for path in list_pictures(folder.path, name)
        ]
        several: list[list[int]] = []
        if key == "real":
            known = read_real_labels(self.find_real_labels(root))
            seen = [(entry, labels_of(known, entry[0])) for entry in found]
            found = [entry for entry, labels in seen if labels]
            several = [self.columns_of(labels) for _, labels in seen if labels]
        if not self.subset_ok and len(found) != PUBLISHED[key].pictures:
            raise DnaError(f"{folder.path}: {len(found):,} pictures, published {PUBLISHED[key].pictures:,}: {SUBSET_OK}")
        if not found:
            raise DnaError(f"{folder.path}: no picture in its class folders")
        return found, several

    def find_real_labels(self, root: Path) -> Path | None:
        """The file of ReaL labels; None where timm's copy serves."""
        if self.real_labels:
            return Path(self.real_labels).expanduser()
        return root / REAL_LABELS if (root / REAL_LABELS).is_file() else None

    def columns_of(self, indices: Sequence[int]) -> list[int]:
        """The model's classes of some ImageNet indices.

        Raises:
            DnaError: the model has none for one of them.
        """
        ids = [known_ids()[index] for index in indices]
        lacking = [known for known in ids if known not in self.ids]
        if lacking:
            raise DnaError(f"ReaL labels: the model's class list has no {lacking[0]}")
        return [self.ids[known] for known in ids]

    def counts(self) -> dict[str, int]:
        """Samples of each set; of val those in O's folders, of c each picture under each corruption."""
        return self.parts.counts()

    def published_counts(self) -> dict[str, int]:
        """Samples of the test part where the folders are as published."""
        times = {"c": len(self.corruptions)}
        return {"test": sum(PUBLISHED[key].pictures * times.get(key, 1) for key in self.sets)}

    def origin(self, split: str) -> str:
        """The folders that the test part is read from."""
        return ", ".join(dict.fromkeys(folder.path.name for folder in self.folders.values()))

    def position(self) -> dict[str, int]:
        """There is no training to go on with."""
        return {"seed": self.seed, "length": len(self.samples("test").labels)}

    def augmentation(self) -> dict[str, Any]:
        """There are no training pictures."""
        return {}

    def protocol(self) -> Mapping[str, Any]:
        """What a record says about how the sets were read, as plain values."""
        told: dict[str, Any] = {
            "classes": len(self.classes),
            "folders": {key: len(folder.names) for key, folder in self.folders.items()},
            "subset_ok": self.subset_ok,
        }
        if "real" in self.sets:
            told["real_labels"] = str(self.find_real_labels(self.find_root()) or "timm")
        if "c" in self.sets:
            told["corruptions"] = describe_corruptions(self.corruptions)
        return told
