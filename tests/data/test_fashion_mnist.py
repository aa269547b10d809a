import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from dna_suite.data import fashion_mnist
from dna_suite.data.digits import read_digits, scale_digits, split_digits
from dna_suite.data.fashion_mnist import FashionMNIST, read_idx
from dna_suite.data.toy import write_toy
from dna_suite.errors import DnaError

IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    return write_toy("fashion_mnist", tmp_path_factory.mktemp("fashion") / "x")


@pytest.fixture
def copy(packed, tmp_path) -> Path:
    return shutil.copytree(packed, tmp_path / "copy")


def fashion(root: Path | None, **arguments) -> FashionMNIST:
    return FashionMNIST("fashion_mnist", root=None if root is None else str(root), **arguments)


def test_pictures_and_labels_are_those_of_the_files(packed):
    data = fashion(packed)
    assert data.counts() == {"train": 180, "val": 20, "test": 50}
    ink, labels = read_digits()
    test = split_digits(labels)["test"]
    first = [test[labels[test] == digit][0] for digit in range(10)]
    assert data.samples("test").labels[:10].tolist() == list(range(10))
    assert np.array_equal(data.samples("test").pictures[:10, 0], scale_digits(ink[first], 28))


def test_torchvisions_unpacked_folder(packed, tmp_path):
    from torchvision.datasets import FashionMNIST as Theirs

    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for path in packed.iterdir():
        (raw / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    ours = fashion(tmp_path)
    theirs = Theirs(str(tmp_path), train=False)
    assert np.array_equal(ours.samples("test").pictures[:, 0], theirs.data.numpy())
    assert ours.samples("test").labels.tolist() == theirs.targets.tolist()
    assert ours.classes == theirs.classes


def test_system_package_where_nothing_else_is_said(packed, tmp_path, monkeypatch):
    monkeypatch.setenv("DNA_DATA", str(tmp_path))
    monkeypatch.setattr(fashion_mnist, "SYSTEM", tmp_path / "gone")
    with pytest.raises(DnaError, match="apt install dataset-fashion-mnist"):
        fashion(None).counts()
    monkeypatch.setattr(fashion_mnist, "SYSTEM", packed)
    assert fashion(None).folder() == packed
    (tmp_path / "fashion_mnist").mkdir()
    assert fashion(None).folder() == tmp_path / "fashion_mnist"
    assert fashion(None, toy=True).folder() == tmp_path / "toy" / "fashion_mnist"


def rewrite(copy: Path, name: str, change) -> None:
    path = copy / f"{name}.gz"
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: (c / f"{LABELS}.gz").unlink(), f"no {LABELS} or {LABELS}.gz"),
        (lambda c: (c / f"{IMAGES}.gz").write_bytes((c / f"{IMAGES}.gz").read_bytes()[:-200]), "damaged or cut"),
        (lambda c: flip_byte(c / f"{IMAGES}.gz"), "damaged or cut"),
        (lambda c: (c / f"{IMAGES}.gz").write_bytes(b"no gzip"), "damaged or cut"),
        (lambda c: rewrite(c, IMAGES, lambda b: b[:-1]), "39199 bytes for an array of 50 x 28 x 28"),
        (lambda c: rewrite(c, IMAGES, lambda b: b"\0\0\x0d" + b[3:]), "no idx file of bytes in 3 dimensions"),
        (lambda c: rewrite(c, LABELS, lambda b: b[:7] + bytes([49]) + b[8:-1]), "50 test pictures, but 49 labels"),
        (lambda c: rewrite(c, LABELS, lambda b: b[:-1] + bytes([10])), "label 10 in test"),
        (lambda c: shutil.copy(c / f"{LABELS}.gz", c / f"{IMAGES}.gz"), "no idx file of bytes in 3 dimensions"),
    ],
)
def test_damaged_files_are_named(change, message, copy):
    change(copy)
    with pytest.raises(DnaError, match=message):
        fashion(copy).counts()


def test_empty_idx_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes((0, 0, 8, 1, 0, 0, 0, 0)))
    assert read_idx(path, 1).shape == (0,)
