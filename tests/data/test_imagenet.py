import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from dna_suite.data.imagenet import ImageNet
from dna_suite.errors import DnaError

from .pictures import COLOURS, write_noise, write_solid, write_tree


def imagenet(root: Path, **changes) -> ImageNet:
    return ImageNet(**{"root": str(root), "size": 16, "crop_ratio": 1.0, "workers": 0, "batch": 4, **changes})


def top1(data: ImageNet) -> tuple[int, int]:
    """Right answers and samples of a model that knows the classes' colours by name."""
    colours = torch.tensor([COLOURS[name] for name in data.classes])
    right = number = 0
    for batch in data.val_dataloader():
        seen = batch["image"][:, :, 8, 8].int()
        guess = (seen[:, None] - colours).abs().sum(2).argmin(1)
        right += int((guess == batch["label"])[batch["counted"]].sum())
        number += batch["present"]
    return right, number


def test_classes_and_counts(tmp_path):
    data = imagenet(write_tree(tmp_path))
    assert data.classes == ["a", "b", "c", "d"]
    assert data.counts() == {"train": 20, "val": 20, "test": 20}
    assert data.source("test") == "val"
    assert top1(data) == (20, 20)


@pytest.mark.parametrize("empty_folder", [True, False])
def test_class_without_val_pictures_keeps_the_others_in_place(tmp_path, empty_folder):
    # IMG-02: labels by position instead of name would give 5 of 15.
    root = write_tree(tmp_path, val="acd")
    if empty_folder:
        (root / "val" / "b").mkdir()
    data = imagenet(root)
    with pytest.warns(UserWarning, match="no picture of class b") as caught:
        result = top1(data)
    assert len(caught) == 1
    assert result == (15, 15)
    assert any("no picture of class b" in note for note in data.notes)


def test_class_that_train_lacks_is_an_error(tmp_path):
    data = imagenet(write_tree(tmp_path, train="abc", val="abcd"))
    with pytest.raises(DnaError, match=r"class folder 'd'.*val"):
        data.samples("val")


def test_leftovers_are_no_classes(tmp_path):
    # IMG-03
    root = write_tree(tmp_path, train="ab", val="ab")
    train = root / "train"
    write_solid(train / ".ipynb_checkpoints" / "x.png", COLOURS["a"])
    write_solid(train / "__MACOSX" / "y.png", COLOURS["a"])
    (train / ".DS_Store").write_bytes(b"\0" * 100)
    (train / "Thumbs.db").write_bytes(b"\0" * 100)
    (train / "a" / "._a0.png").write_bytes(b"\0" * 4096)
    data = imagenet(root)
    assert data.classes == ["a", "b"]
    assert data.counts()["train"] == 10
    assert sum(len(batch["label"]) for batch in data.train_dataloader()) == 10
    assert data.notes == [f"{train}: 5 hidden, system-made or non-picture entries ignored"]


def test_empty_class_folder_in_train(tmp_path):
    # IMG-05
    root = write_tree(tmp_path, train="ac", val="ac")
    (root / "train" / "b").mkdir()
    with pytest.raises(DnaError, match=r"no picture in class folder b .*allow_empty"):
        imagenet(root).samples("train")
    data = imagenet(root, allow_empty=True)
    with pytest.warns(UserWarning, match="no picture of class b"):
        labels = data.samples("train").labels
    assert data.classes == ["a", "b", "c"]
    assert sorted(set(labels.tolist())) == [0, 2]


def flatten(root: Path, header: bool) -> Path:
    """Move the val pictures out of their class folders; the lines of the label file are in another order than the names."""
    lines = ["name,class"] if header else []
    for folder in sorted((root / "val").iterdir(), reverse=True):
        for picture in folder.iterdir():
            lines.append(f"{picture.name}, {folder.name}")
            picture.rename(root / "val" / picture.name)
        folder.rmdir()
    file = root / "val_labels.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_flat_val_folder_with_labels_is_the_foldered_one(tmp_path, header, inside):
    # IMG-01
    foldered = imagenet(write_tree(tmp_path / "foldered"))
    root = write_tree(tmp_path / "flat")
    file = flatten(root, header)
    if inside:
        shutil.move(file, root / "val")
    flat = imagenet(root)
    for one, other in zip(foldered.val_dataloader(), flat.val_dataloader(), strict=True):
        assert torch.equal(one["image"], other["image"])
        assert torch.equal(one["label"], other["label"])


def test_flat_val_folder_without_labels_is_an_error(tmp_path):
    root = write_tree(tmp_path)
    flatten(root, header=False).unlink()
    with pytest.raises(DnaError) as caught:
        imagenet(root).counts()
    text = str(caught.value)
    assert "\n" not in text
    assert f"{root}/val: 20 pictures" in text
    assert "val/CLASS/NAME.JPEG" in text
    assert "val_labels.csv" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[1:], "1 pictures have no line, 'd"),
        (lambda lines: [*lines, "z.png,a"], "1 pictures are missing, 'z.png'"),
        (lambda lines: ["q.png,e", *lines], ":1.*unknown class 'e'|unknown class 'e'.*:1"),
        (lambda lines: [lines[0], *lines], ":2: 'd. ?.png' stands twice|stands twice"),
        (lambda lines: ["only one field", *lines], ":1: 1 fields"),
    ],
)
def test_label_file_with_a_fault(tmp_path, change, message):
    root = write_tree(tmp_path)
    file = flatten(root, header=False)
    file.write_text("\n".join(change(file.read_text().splitlines())))
    with pytest.raises(DnaError, match=message):
        imagenet(root).samples("val")


def test_validation_is_val(tmp_path):
    root = write_tree(tmp_path)
    (root / "val").rename(root / "validation")
    assert imagenet(root).source("val") == "validation"


def test_own_test_folder(tmp_path):
    root = write_tree(tmp_path)
    shutil.copytree(root / "val", root / "test")
    (root / "test" / "a" / "a0.png").unlink()
    data = imagenet(root)
    assert data.source("test") == "test"
    assert data.counts() == {"train": 20, "val": 20, "test": 19}


def test_test_folder_without_labels_is_not_used(tmp_path):
    root = write_tree(tmp_path)
    write_solid(root / "test" / "ILSVRC2012_test_00000001.png", COLOURS["a"])
    assert imagenet(root).source("test") == "val"


@pytest.mark.parametrize("gone", ["train", "val"])
def test_missing_split_shows_the_layout(tmp_path, gone):
    root = write_tree(tmp_path)
    shutil.rmtree(root / gone)
    with pytest.raises(DnaError, match=rf"(?s)no folder {gone}.*train/CLASS/NAME.JPEG"):
        imagenet(root).counts()


def test_pictures_below_class_folders_belong_to_the_class(tmp_path):
    root = write_tree(tmp_path)
    write_solid(root / "train" / "c" / "images" / "x.png", COLOURS["c"])
    assert np.bincount(imagenet(root).samples("train").labels).tolist() == [5, 5, 6, 5]


def test_workers_and_shared_decoding_do_not_change_pixels(tmp_path):
    for i in range(10):
        write_noise(tmp_path / "train" / "ab"[i % 2] / f"{i}.jpg", 40, 32, seed=i)
    write_tree(tmp_path, train="", val="ab")
    settings = {"augment": "rand-m9-mstd0.5-inc1", "repeats": 3}

    def seen(workers: int) -> list[torch.Tensor]:
        return [batch["image"] for batch in imagenet(tmp_path, workers=workers, **settings).train_dataloader()]

    alone, two = seen(0), seen(2)
    assert all(torch.equal(one, other) for one, other in zip(alone, two, strict=True))
    keyed = imagenet(tmp_path, **settings).keyed("train")
    # Asked in another order, each copy is decoded anew.
    apart = [keyed[0, index, repeat]["image"] for repeat in range(3) for index in (0, 1)]
    together = [keyed[0, index, repeat]["image"] for index in (0, 1) for repeat in range(3)]
    assert all(torch.equal(apart[2 * repeat + index], together[3 * index + repeat]) for repeat in range(3) for index in (0, 1))
    assert not torch.equal(apart[0], apart[2])


def test_no_warning_for_a_clean_tree(tmp_path):
    data = imagenet(write_tree(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data.counts()["val"] == 20
