import shutil
from pathlib import Path

import numpy as np
import pytest

from dna_suite.data.resident import Decoded, MovedBatches
from dna_suite.data.samples import PictureSamples
from dna_suite.data.tiny_imagenet import TinyImageNet
from dna_suite.data.toy import write_toy
from dna_suite.data.toy_pictures import SYNSETS
from dna_suite.errors import DnaError


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return write_toy("tiny_imagenet", tmp_path_factory.mktemp("tiny") / "x")


@pytest.fixture
def copy(root, tmp_path) -> Path:
    return shutil.copytree(root, tmp_path / "copy")


def tiny(root: Path, **arguments) -> TinyImageNet:
    return TinyImageNet("tiny_imagenet", root=str(root), **arguments)


def test_annotations_give_the_labels(root):
    data = tiny(root)
    assert data.classes == sorted(SYNSETS)
    assert data.counts() == {"train": 200, "val": 50, "test": 50}
    assert [data.source(split) for split in ("train", "val", "test")] == ["train", "val", "val"]
    lines = [line.split("\t") for line in (root / "val" / "val_annotations.txt").read_text().splitlines()]
    assert [data.classes[label] for label in data.samples("val").labels] == [line[1] for line in lines]


def test_decoded_once_and_shared_by_train_and_holdout(root):
    data = tiny(root, holdout=20)
    train, val = data.keyed("train"), data.keyed("val")
    assert isinstance(train, MovedBatches)
    assert data.source("val") == "train (holdout 20, seed 0)"
    assert data.counts() == {"train": 180, "val": 20, "test": 50}
    files = data.samples("train").stored
    assert isinstance(files, Decoded)
    wanted = np.stack([files.files.read(int(row)).numpy() for row in data.samples("val").rows[:4]])
    assert np.array_equal(val.__getitems__([(index, True) for index in range(4)])["image"].numpy(), wanted)


def test_another_size_decodes_each_picture_when_it_is_needed(root):
    data = tiny(root, size=96, batch=8)
    assert isinstance(data.samples("train"), PictureSamples)
    assert next(iter(data.train_dataloader()))["image"].shape == (8, 3, 96, 96)


def test_folder_inside_the_folder(copy):
    copy.rename(copy.parent / "tiny-imagenet-200")
    assert tiny(copy.parent).counts() == {"train": 200, "val": 50, "test": 50}


def change_line(copy: Path, old: str, new: str) -> None:
    file = copy / "val" / "val_annotations.txt"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda copy: (copy / "val" / "val_annotations.txt").unlink(), "no file val_annotations.txt"),
        (lambda copy: shutil.rmtree(copy / "val" / "images"), "no folder images"),
        (lambda copy: change_line(copy, SYNSETS[0], "n01440765"), r"val_annotations.txt:1\).*did you mean 'n01440764'"),
        (
            lambda copy: change_line(copy, "val_0.JPEG\tn01440764\t0\t0\t63\t63", "val_0.JPEG n01440764"),
            "a line is NAME.JPEG<tab>",
        ),
        (lambda copy: change_line(copy, "val_1.JPEG", "val_0.JPEG"), r"val_annotations.txt:2: val_0.JPEG stands twice"),
        (lambda copy: change_line(copy, "val_1.JPEG", "val_99.JPEG"), r"val_annotations.txt:2: val_99.JPEG is not in images"),
        (
            lambda copy: shutil.copy(copy / "val/images/val_1.JPEG", copy / "val/images/w.JPEG"),
            "1 pictures have no line, first w",
        ),
        (lambda copy: shutil.rmtree(copy / "train" / SYNSETS[3] / "images"), f"no picture in {SYNSETS[3]}/images"),
        (lambda copy: shutil.rmtree(copy / "train"), "no folder train"),
    ],
)
def test_broken_sets_are_told_in_one_error(change, message, copy):
    change(copy)
    with pytest.raises(DnaError, match=message):
        tiny(copy).counts()
