"""Stanford Cars: labels in .mat files, in the official layout or the nested one of mirrors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dna_suite.data.images import ImageData
from dna_suite.data.samples import Paths, PictureSamples
from dna_suite.errors import DnaError

LABELS = {"train": "cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}
NAMES = "cars_meta.mat"
# The archives' own places, those of the mirror whose folders hold themselves, and torchvision's folder around either.
MAT_PLACES = ("devkit", "", "car_devkit/devkit", "car_devkit", "devkit/devkit")
AROUND = ("", "stanford_cars")


class Cars(ImageData):
    """Stanford Cars, 8,144 / 8,041 for train / test in 196 classes; val is held out of train. The official links are gone.

    Source: Krause et al. 2013. Mirrors with other layouts and without the test labels: pytorch/vision#7545.
    """

    layout: ClassVar[str] = (
        "  cars_train/NAME.jpg, cars_test/NAME.jpg   or   cars_train/cars_train/NAME.jpg, cars_test/cars_test/NAME.jpg\n"
        "  devkit/cars_meta.mat, devkit/cars_train_annos.mat, cars_test_annos_withlabels.mat (there or in devkit)\n"
        "  devkit may be car_devkit/devkit, and all of it may lie in stanford_cars/"
    )
    own_val: ClassVar[bool] = False

    @property
    def classes(self) -> list[str]:
        """The class names, in label order."""
        path = self.find_mat(NAMES)
        names = read_mat(path, "class_names")
        return [str(name) for name in names]

    def find_mat(self, name: str) -> Path:
        """A .mat file in one of the places where it is kept.

        Raises:
            DnaError: it is in none of them.
        """
        root = self.folder()
        for around in AROUND:
            for place in MAT_PLACES:
                path = root / around / place / name
                if path.is_file():
                    return path
        raise DnaError(f"{root}: no file {name}. {self.ways_to_get(root)}")

    def find_pictures(self, split: str) -> Path:
        """The folder of a split's pictures.

        Raises:
            DnaError: there is none.
        """
        root, name = self.folder(), f"cars_{split}"
        for around in AROUND:
            for place in (root / around / name / name, root / around / name):
                if place.is_dir():
                    return place
        raise DnaError(f"{root}: no folder {name}. {self.ways_to_get(root)}")

    def read(self, split: str, role: str) -> PictureSamples:
        """All samples of train or test, in the order of the label file; classes 1 to 196 of the file become 0 to 195.

        Raises:
            DnaError: a file or folder is missing, a label has no name, or a picture is not there.
        """
        path, folder = self.find_mat(LABELS[split]), self.find_pictures(split)
        rows = read_mat(path, "annotations")
        if not {"class", "fname"} <= set(rows.dtype.names or ()):
            fields = ", ".join(rows.dtype.names or ()) or "none"
            raise DnaError(f"{path}: no labels in it: its fields are {fields}; class and fname are needed")
        names = [str(name) for name in rows["fname"]]
        labels = rows["class"].astype(np.int64) - 1
        known = len(self.classes)
        if len(labels) and not 0 <= labels.min() <= labels.max() < known:
            wrong = labels[(labels < 0) | (labels >= known)][0] + 1
            raise DnaError(f"{path}: class {wrong}; {NAMES} names classes 1 to {known}")
        there = {entry.name for entry in folder.iterdir()}
        missing = [name for name in names if name not in there]
        if missing:
            raise DnaError(f"{folder}: {len(missing)} of {len(names)} pictures of {path.name} are missing, first {missing[0]}")
        return PictureSamples(folder, Paths(names), labels, self.transform_as(role), self.size, self.max_pixels, self.on_error)


def read_mat(path: Path, key: str) -> Any:
    """One variable of a MATLAB file, always as an array of one dimension.

    Raises:
        DnaError: scipy is missing, the file is damaged, or it has no such variable.
    """
    try:
        from scipy.io import loadmat
    except ImportError:
        raise DnaError("data set cars reads .mat files: pip install 'dna_suite[cars]'") from None
    try:
        values = loadmat(path, squeeze_me=True)
    except Exception as problem:
        # scipy raises many kinds for a damaged file.
        raise DnaError(f"{path}: no MATLAB file, or a damaged one ({problem})") from None
    if key not in values:
        raise DnaError(f"{path}: no variable {key} in it")
    return np.atleast_1d(values[key])
