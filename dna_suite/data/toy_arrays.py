"""Toy twins that are arrays: handwritten digits in CIFAR's pickled batches and in Fashion-MNIST's idx files."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from dna_suite.data.digits import read_digits, scale_digits, split_digits
from dna_suite.data.sums import write_sums


def pickle_as_python_2(value: Any) -> bytes:
    """A dictionary of plain values and uint8 arrays as Python 2 and numpy 1 pickled it: CIFAR's files are such."""
    return b"\x80\x02" + write_value(value) + b"."


def write_value(value: Any) -> bytes:
    """The opcodes of one value in protocol 2, with strings as Python 2 has them."""
    return {
        NoneType: lambda: b"N",
        int: lambda: b"J" + struct.pack("<i", value),
        str: lambda: write_value(value.encode("latin1")),
        bytes: lambda: b"T" + struct.pack("<i", len(value)) + value,
        list: lambda: b"](" + b"".join(map(write_value, value)) + b"e",
        tuple: lambda: b"(" + b"".join(map(write_value, value)) + b"t",
        dict: lambda: b"}(" + b"".join(write_value(key) + write_value(inner) for key, inner in value.items()) + b"u",
        np.ndarray: lambda: write_array(value),
    }[type(value)]()


def write_array(array: np.ndarray) -> bytes:
    """The opcodes of a uint8 array: an empty one is made, then gets its shape, type and bytes."""
    assert array.dtype == np.uint8
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + write_value((0,)) + write_value("b") + b"tR"
    kind = b"cnumpy\ndtype\n" + write_value(("u1", 0, 1)) + b"R" + write_value((3, "|", None, None, None, -1, -1, 0)) + b"b"
    return empty + b"(" + write_value(1) + write_value(array.shape) + kind + write_value(0) + write_value(array.tobytes()) + b"tb"


def take_digits(split: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The first samples of each digit in train or test, in turn: ink [10 * number, 8, 8], labels [10 * number]."""
    ink, labels = read_digits()
    chosen = split_digits(labels)[split]
    order = np.stack([chosen[labels[chosen] == digit][:number] for digit in range(10)], axis=1).ravel()
    return ink[order], labels[order]


def colour_rows(levels: np.ndarray) -> np.ndarray:
    """Grey levels [n, 32, 32] as rows [n, 3072] of red, green and blue planes, each sample in a colour of its own."""
    tint = np.random.default_rng(len(levels)).uniform(0.4, 1.0, (len(levels), 3, 1, 1))
    return (levels[:, None] * tint).astype(np.uint8).reshape(len(levels), -1)


def write_archive(path: Path, base: str, files: dict[str, dict[str, Any]]) -> None:
    """Pickled files in a folder of a tar.gz, equal byte by byte each time, with the sums in MD5SUMS beside it."""
    with (
        path.open("wb") as target,
        gzip.GzipFile("", "wb", fileobj=target, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, values in files.items():
            content = pickle_as_python_2(values)
            member = tarfile.TarInfo(f"{base}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    write_sums(path.parent)


def write_cifar10(folder: Path) -> None:
    """CIFAR-10's python archive: five batches of 40 digits and a test batch of 50, in ten classes."""
    files: dict[str, dict[str, Any]] = {}
    ink, labels = take_digits("train", 20)
    rows = colour_rows(scale_digits(ink, 32))
    for number, part in enumerate(np.split(np.arange(len(labels)), 5), start=1):
        files[f"data_batch_{number}"] = cifar_batch(rows[part], labels[part], "labels")
    ink, labels = take_digits("test", 5)
    files["test_batch"] = cifar_batch(colour_rows(scale_digits(ink, 32)), labels, "labels")
    files["batches.meta"] = {"num_cases_per_batch": 40, "label_names": [f"digit {digit}" for digit in range(10)], "num_vis": 3072}
    write_archive(folder / "cifar-10-python.tar.gz", "cifar-10-batches-py", files)


def write_cifar100(folder: Path) -> None:
    """CIFAR-100's python archive: the numbers 00 to 99 as pairs of digits, 4 training and 1 test picture of each."""
    files: dict[str, dict[str, Any]] = {}
    for split, copies in (("train", 4), ("test", 1)):
        ink, digits = take_digits(split, 10 * copies)
        of_digit = [ink[digits == digit] for digit in range(10)]
        numbers = np.tile(np.arange(100), copies)
        tens, ones, turn = numbers // 10, numbers % 10, np.arange(100 * copies) // 100
        left = np.stack([of_digit[ten][10 * copy + one] for ten, one, copy in zip(tens, ones, turn, strict=True)])
        right = np.stack([of_digit[one][10 * copy + ten] for ten, one, copy in zip(tens, ones, turn, strict=True)])
        levels = np.zeros((len(numbers), 32, 32), dtype=np.uint8)
        levels[:, 8:24, :16], levels[:, 8:24, 16:] = scale_digits(left, 16), scale_digits(right, 16)
        files[split] = {**cifar_batch(colour_rows(levels), numbers, "fine_labels"), "coarse_labels": tens.tolist()}
    names = [f"{number:02d}" for number in range(100)]
    files["meta"] = {"fine_label_names": names, "coarse_label_names": [f"{ten}0 to {ten}9" for ten in range(10)]}
    write_archive(folder / "cifar-100-python.tar.gz", "cifar-100-python", files)


def cifar_batch(rows: np.ndarray, labels: np.ndarray, key: str) -> dict[str, Any]:
    """One batch file's content."""
    names = [f"{label}_s_{place:06d}.png" for place, label in enumerate(labels.tolist())]
    return {"batch_label": "toy", key: labels.tolist(), "data": rows, "filenames": names}


def write_fashion_mnist(folder: Path) -> None:
    """Fashion-MNIST's four idx files with gzip: 200 training and 50 test digits."""
    for stem, split, number in (("train", "train", 20), ("t10k", "test", 5)):
        ink, labels = take_digits(split, number)
        for kind, array in (("images-idx3", scale_digits(ink, 28)), ("labels-idx1", labels.astype(np.uint8))):
            head = bytes((0, 0, 8, array.ndim)) + b"".join(struct.pack(">i", side) for side in array.shape)
            (folder / f"{stem}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes(), mtime=0))
