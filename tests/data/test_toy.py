import hashlib
from pathlib import Path

import pytest
from PIL import Image

from dna_suite.catalogue import DATASETS
from dna_suite.data import toy
from dna_suite.data.imagenet import ImageNet
from dna_suite.data.toy import write_toy
from dna_suite.data.toy_pictures import SYNSETS
from dna_suite.errors import DnaError, UnknownName


def digest(folder: Path) -> str:
    sums = [f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in sorted(folder.rglob("*.*"))]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def test_imagenet_is_jpegs_in_imagenets_layout(tmp_path):
    root = write_toy("imagenet", tmp_path / "x" / "imagenet")
    data = ImageNet(root=str(root), size=32)
    assert data.classes == list(SYNSETS)
    assert data.counts() == {"train": 200, "val": 50, "test": 50}
    pictures = [Image.open(path) for path in root.rglob("*.JPEG")]
    assert {picture.format for picture in pictures} == {"JPEG"}
    assert {picture.mode for picture in pictures} == {"RGB", "L"}
    assert len({picture.size for picture in pictures}) > 10
    assert digest(write_toy("imagenet", tmp_path / "again")) == digest(root)
    # Readable for others, as a folder made by hand.
    assert root.stat().st_mode == (tmp_path / "x").stat().st_mode


def test_names_are_imagenets():
    from timm.data import ImageNetInfo

    assert set(SYNSETS) <= set(ImageNetInfo().label_names())


def test_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(DnaError, match=f"{tmp_path} exists and is not empty"):
        write_toy("imagenet", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_empty_folder_is_filled(tmp_path):
    (tmp_path / "new").mkdir()
    assert (write_toy("imagenet", tmp_path / "new") / "train").is_dir()


def test_unknown_toy(tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'imagenet'"):
        write_toy("imagnet", tmp_path / "x")


def test_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
    def write_some(folder: Path) -> None:
        (folder / "train").mkdir()
        raise OSError("no space left")

    monkeypatch.setitem(toy.WRITERS, "imagenet", write_some)
    with pytest.raises(OSError, match="no space left"):
        write_toy("imagenet", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", toy.WRITERS)
def test_every_toy_is_the_same_each_time(name, tmp_path):
    first, second = (write_toy(name, tmp_path / place) for place in "ab")
    assert digest(first) == digest(second)
    assert digest(first) != digest(tmp_path)


def test_every_data_set_but_digits_has_a_toy():
    assert {name for sets in DATASETS.values() for name in sets} == {"digits", *toy.WRITERS}
