import io
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from dna_suite.data.array_pickles import read_pickle
from dna_suite.data.cifar import CIFAR10, CIFAR100, published_archive
from dna_suite.data.sums import md5_of, write_sums
from dna_suite.data.toy import write_toy
from dna_suite.data.toy_arrays import colour_rows, pickle_as_python_2, take_digits
from dna_suite.errors import DnaError

ARCHIVE = "cifar-10-python.tar.gz"


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    return write_toy("cifar10", tmp_path_factory.mktemp("cifar") / "packed")


@pytest.fixture
def unpacked(packed, tmp_path) -> Path:
    with tarfile.open(packed / ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    write_sums(tmp_path / "cifar-10-batches-py")
    return tmp_path


def data_of(root: Path, **arguments) -> CIFAR10:
    return CIFAR10("cifar10", root=str(root), **arguments)


def test_packed_and_unpacked_hold_the_same_samples(packed, unpacked):
    theirs, ours, inner = data_of(packed), data_of(unpacked), data_of(unpacked / "cifar-10-batches-py")
    for data in (theirs, ours, inner):
        assert data.classes == [f"digit {digit}" for digit in range(10)]
        assert data.counts() == {"train": 180, "val": 20, "test": 50}
        for split in ("train", "val", "test"):
            assert np.array_equal(data.samples(split).gather(np.arange(20)), theirs.samples(split).gather(np.arange(20)))
    assert data.source("val") == "train (holdout 20, seed 0)"
    assert sorted(path.name for path in packed.iterdir()) == ["MD5SUMS", ARCHIVE]


def test_rows_are_colour_planes_and_torchvision_reads_the_same(unpacked, monkeypatch):
    from torchvision.datasets import CIFAR10 as Theirs

    monkeypatch.setattr(Theirs, "_check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5: True)
    ours = data_of(unpacked, holdout=None)
    for split in ("train", "test"):
        theirs = Theirs(str(unpacked), train=split == "train")
        assert np.array_equal(ours.samples(split).pictures.transpose(0, 2, 3, 1), theirs.data)
        assert ours.samples(split).labels.tolist() == theirs.targets
    _, labels = take_digits("test", 5)
    assert labels.tolist() == ours.samples("test").labels.tolist()
    assert colour_rows(np.full((1, 32, 32), 200, np.uint8)).shape == (1, 3072)


def test_cifar_100_has_fine_labels(tmp_path):
    data = CIFAR100("cifar100", root=str(write_toy("cifar100", tmp_path / "x")))
    assert data.classes[7] == "07"
    assert data.counts() == {"train": 360, "val": 40, "test": 100}
    assert data.samples("test").labels.tolist() == list(range(100))
    # 53 is a five beside a three, and 35 the other way round; tints are each picture's own.
    left, right = (data.samples("test").pictures[number, 0, 8:24].astype(float) for number in (53, 35))
    assert np.corrcoef(left[:, :16].ravel(), right[:, 16:].ravel())[0, 1] > 0.3


def test_published_names_and_sums():
    archive = published_archive("CIFAR10", "labels")
    assert archive.sums[ARCHIVE] == "c58f30108f718f92721af3b95e74349a"
    assert archive.files["train"] == tuple(f"data_batch_{number}" for number in range(1, 6))


def test_cut_archive_names_file_both_sums_and_the_way_out(packed, tmp_path):
    # IMG-11, mlverse/torchvision#51.
    shutil.copytree(packed, tmp_path / "cut")
    path = tmp_path / "cut" / ARCHIVE
    whole = md5_of(path)
    path.write_bytes(path.read_bytes()[:-1024])
    with pytest.raises(DnaError) as caught:
        data_of(tmp_path / "cut").counts()
    text = str(caught.value)
    assert text.startswith(f"{path}: md5 {md5_of(path)}, expected {whole}: the file is cut or changed")
    assert f"dna data download cifar10 {tmp_path / 'cut'}" in text
    assert "\n" not in text
    assert sorted(entry.name for entry in (tmp_path / "cut").iterdir()) == ["MD5SUMS", ARCHIVE]


def test_a_published_name_with_other_content_is_refused(packed, tmp_path):
    shutil.copy(packed / ARCHIVE, tmp_path / ARCHIVE)
    with pytest.raises(DnaError, match="expected c58f30108f718f92721af3b95e74349a"):
        data_of(tmp_path).counts()


def test_one_byte_changed_in_an_unpacked_batch(unpacked):
    path = unpacked / "cifar-10-batches-py" / "data_batch_3"
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DnaError, match=rf"{path}: md5 {md5_of(path)}, expected [0-9a-f]{{32}}"):
        data_of(unpacked).counts()
    path.unlink()
    with pytest.raises(DnaError, match="cifar-10-batches-py: no file data_batch_3"):
        data_of(unpacked).counts()


def test_empty_folder_shows_layout_download_and_toy(tmp_path):
    with pytest.raises(DnaError) as caught:
        data_of(tmp_path).counts()
    for words in (ARCHIVE, "batches.meta", f"dna data download cifar10 {tmp_path}", f"dna data toy cifar10 {tmp_path}"):
        assert words in str(caught.value)


def with_batch(root: Path, content: bytes) -> CIFAR10:
    (root / "cifar-10-batches-py" / "data_batch_1").write_bytes(content)
    write_sums(root / "cifar-10-batches-py")
    return data_of(root)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"data": print}), r"data_batch_1: names builtins\.print; only numpy arrays and plain values are read"),
        (b"cos\nsystem\n(S'echo x'\ntR.", r"names os\.system"),
        (pickle.dumps([1, 2]), "holds list, not a dictionary"),
        (b"\x80\x02}q", "no pickle of arrays"),
        (pickle_as_python_2({"data": np.zeros((2, 5), np.uint8), "labels": [0, 1]}), "no batches of 32 x 32 pictures"),
        (pickle_as_python_2({"data": np.zeros((1, 3072), np.uint8), "labels": [10]}), "a label in train is none of 0 to 9"),
        (pickle_as_python_2({"data": np.zeros((1, 3072), np.uint8), "labels": [1, 2]}), "161 uint8 pictures with 162 labels"),
        (pickle_as_python_2({"labels": [1, 2]}), "no batches of 32 x 32 pictures with labels"),
    ],
)
def test_pickles_that_hold_something_else(content, message, unpacked):
    with pytest.raises(DnaError, match=message):
        with_batch(unpacked, content).counts()


def test_arrays_of_either_numpy_are_read():
    values = {"data": np.arange(300, dtype=np.uint8).reshape(3, 100), "labels": [1, 2, 300], "name": "x" * 300}
    for content in (pickle_as_python_2(values), pickle.dumps(values, protocol=4)):
        found = read_pickle(content, "here")
        assert np.array_equal(found["data"], values["data"])
        assert (found["labels"], found["name"]) == (values["labels"], values["name"])


def test_archive_members_outside_their_folder_are_not_read(packed, tmp_path):
    with tarfile.open(tmp_path / ARCHIVE, "w:gz") as archive:
        for name in ("../cifar-10-batches-py/data_batch_1", "data_batch_1"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    write_sums(tmp_path)
    with pytest.raises(DnaError, match=f"{ARCHIVE}: no cifar-10-batches-py/data_batch_1 in it"):
        data_of(tmp_path).counts()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["MD5SUMS", ARCHIVE]
