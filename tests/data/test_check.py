import pytest

from dna_suite.data.check import check_data
from dna_suite.data.digits import Digits
from dna_suite.data.imagenet import ImageNet

from .pictures import write_tree


def test_sound_set(tmp_path):
    report = check_data(ImageNet(root=str(write_tree(tmp_path))))
    assert report.sound
    assert report.classes == ("a", "b", "c", "d")
    assert [(split.split, split.source, split.samples, split.per_class.tolist()) for split in report.splits] == [
        ("train", "train", 20, [5, 5, 5, 5]),
        ("val", "val", 20, [5, 5, 5, 5]),
        ("test", "val", 20, [5, 5, 5, 5]),
    ]


def test_unreadable_files_are_all_named(tmp_path):
    root = write_tree(tmp_path)
    bad = [root / "train" / "a" / "a1.png", root / "train" / "d" / "d4.png", root / "val" / "c" / "c0.png"]
    for path in bad:
        path.write_bytes(b"")
    report = check_data(ImageNet(root=str(root)))
    assert not report.sound
    train, val, test = (split.unreadable for split in report.splits)
    assert [line.partition(":")[0] for line in train + val] == [str(path) for path in bad]
    assert test == val


def test_split_that_cannot_be_listed_does_not_hide_the_others(tmp_path):
    root = write_tree(tmp_path)
    (root / "val" / "e").mkdir()
    report = check_data(ImageNet(root=str(root)))
    assert not report.sound
    assert [split.split for split in report.splits] == ["train"]
    assert len(report.problems) == 1
    assert "'e'" in report.problems[0]


@pytest.mark.filterwarnings("ignore:.*no picture of class")
def test_class_without_val_pictures_is_a_note(tmp_path):
    report = check_data(ImageNet(root=str(write_tree(tmp_path, val="acd"))))
    assert report.sound
    assert report.notes[0] == f"{tmp_path}/val: no picture of class b"


def test_resident_set():
    report = check_data(Digits(subset=30))
    assert report.sound
    assert [split.samples for split in report.splits] == [30, 180, 360]
    assert report.notes == ()
