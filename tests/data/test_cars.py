import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from dna_suite.data.cars import Cars
from dna_suite.data.toy import write_toy
from dna_suite.errors import DnaError


@pytest.fixture(scope="module")
def official(tmp_path_factory) -> Path:
    return write_toy("cars", tmp_path_factory.mktemp("cars") / "official")


@pytest.fixture
def copy(official, tmp_path) -> Path:
    return shutil.copytree(official, tmp_path / "copy")


def cars(root: Path, **arguments) -> Cars:
    return Cars("cars", root=str(root), **{"size": 32, **arguments})


def test_classes_count_from_0(official):
    # IMG-12, pytorch/vision#7545.
    data = cars(official)
    assert data.classes == [f"Handwritten Digit {digit}" for digit in range(10)]
    assert data.counts() == {"train": 180, "val": 20, "test": 50}
    labels = data.read("test", "test").labels
    assert np.bincount(labels).tolist() == [5] * 10
    assert data.samples("test").path(0) == f"{official}/cars_test/00001.jpg"
    assert data.notes == ["train has 200 samples, cars as published 8,144", "test has 50 samples, cars as published 8,041"]


def nested(root: Path) -> Path:
    """The layout of the mirror whose folders hold themselves."""
    for split in ("train", "test"):
        (root / f"cars_{split}").rename(root / "x")
        (root / f"cars_{split}").mkdir()
        (root / "x").rename(root / f"cars_{split}" / f"cars_{split}")
    (root / "car_devkit").mkdir()
    (root / "devkit").rename(root / "car_devkit" / "devkit")
    (root / "cars_test_annos_withlabels.mat").rename(root / "car_devkit" / "devkit" / "cars_test_annos_withlabels.mat")
    return root


def around(root: Path) -> Path:
    """torchvision's folder around the official layout."""
    root.rename(root.parent / "stanford_cars")
    return root.parent


@pytest.mark.parametrize("change", [nested, around])
def test_other_layouts_hold_the_same_samples(change, official, copy):
    data, theirs = cars(change(copy)), cars(official)
    for split in ("train", "val", "test"):
        ours, wanted = data.samples(split), theirs.samples(split)
        assert ours.labels.tolist() == wanted.labels.tolist()
        assert [Path(ours.path(i)).name for i in range(20)] == [Path(wanted.path(i)).name for i in range(20)]
        assert Path(ours.path(3)).is_file()


def test_held_out_pictures_have_the_evaluation_transform(official):
    data = cars(official)
    train, val = data.samples("train"), data.samples("val")
    assert not {train.path(i) for i in range(180)} & {val.path(i) for i in range(20)}
    assert val.transform.__class__.__name__ == "CentreCrop"
    assert train.transform.__class__.__name__ == "TrainCrop"


@pytest.mark.parametrize("name", ["cars_test_annos_withlabels.mat", "devkit/cars_train_annos.mat", "devkit/cars_meta.mat"])
def test_missing_label_file_is_named(name, copy):
    (copy / name).unlink()
    with pytest.raises(DnaError, match=f"no file {Path(name).name}"):
        cars(copy).counts()


def test_labels_that_are_no_labels(copy):
    path = copy / "cars_test_annos_withlabels.mat"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DnaError, match=f"{path}: no MATLAB file"):
        cars(copy).counts()
    rows = np.array([(1, "00001.jpg")], dtype=[("bbox_x1", "i4"), ("fname", object)])
    savemat(path, {"annotations": rows[None]})
    with pytest.raises(DnaError, match="no labels in it: its fields are bbox_x1, fname"):
        cars(copy).counts()
    for wrong in (0, 11):
        rows = np.array([(wrong, "00001.jpg")], dtype=[("class", "i4"), ("fname", object)])
        savemat(path, {"annotations": rows[None]})
        with pytest.raises(DnaError, match=rf"class {wrong}; cars_meta.mat names classes 1 to 10"):
            cars(copy).counts()


def test_pictures_under_other_names(copy):
    # Mirrors disagree on the number of digits in names (OpenGVLab/CaFo#4).
    (copy / "cars_train" / "00007.jpg").rename(copy / "cars_train" / "000007.jpg")
    with pytest.raises(DnaError, match=r"cars_train: 1 of 200 pictures of cars_train_annos.mat are missing, first 00007.jpg"):
        cars(copy).counts()
