import builtins
import errno
import subprocess
import sys

import numpy
import pytest
import torch
from toy_loop import run

from dna_suite.backbones.files import foreign_value
from dna_suite.errors import DnaError
from dna_suite.runs.checkpoint_io import AtomicCheckpointIO


class FullDisk:
    """A file on a disk that has room for `room` more bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.file.close()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def open_with(monkeypatch, room):
    real = builtins.open
    monkeypatch.setattr("builtins.open", lambda path, mode="r", *a, **k: FullDisk(real(path, mode, *a, **k), room))


@pytest.mark.parametrize("room", [0, 50_000, 399_000])
def test_a_full_disk_leaves_the_folder_as_it_was(tmp_path, monkeypatch, room):
    writer = AtomicCheckpointIO()
    writer.save_checkpoint({"w": torch.zeros(10)}, tmp_path / "step00000001.ckpt")
    before = contents(tmp_path)
    open_with(monkeypatch, room)
    for target in ("step00000001.ckpt", "step00000002.ckpt"):
        with pytest.raises(DnaError, match=rf"{target} was not saved: no space left: needs 0\.4 MB, has \d+\.\d MB"):
            writer.save_checkpoint({"w": torch.zeros(100_000)}, tmp_path / target)
    assert contents(tmp_path) == before


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DnaError, match=r"best\.ckpt was not saved: (File exists|Not a directory);"):
        AtomicCheckpointIO().save_checkpoint({"w": torch.zeros(10)}, tmp_path / "file" / "best.ckpt")


def test_an_interrupt_in_the_middle_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    def interrupted(checkpoint, file):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        AtomicCheckpointIO().save_checkpoint({"w": torch.zeros(10)}, tmp_path / "best.ckpt")
    assert contents(tmp_path) == {}


def test_what_is_written_is_read_back_and_an_older_file_is_replaced(tmp_path):
    writer, path = AtomicCheckpointIO(), tmp_path / "new" / "best.ckpt"
    for value in (1.0, 2.0):
        writer.save_checkpoint({"w": torch.full((3,), value), "n": [1, None, ("a", True)]}, path)
    loaded = writer.load_checkpoint(path)
    assert torch.equal(loaded["w"], torch.full((3,), 2.0))
    assert loaded["n"] == [1, None, ("a", True)]
    assert [file.name for file in path.parent.iterdir()] == ["best.ckpt"]


def test_files_that_hold_code_or_other_types_are_refused_whatever_the_caller_asks(tmp_path):
    reader, path = AtomicCheckpointIO(), tmp_path / "x.ckpt"
    torch.save({"run": print}, path)
    with pytest.raises(DnaError, match="refused"):
        reader.load_checkpoint(path, weights_only=False)
    torch.save({"optimizer": [{"dtype": torch.float32}]}, path)
    with pytest.raises(DnaError, match=r"\['optimizer'\]\[0\]\['dtype'\] is a torch\.dtype"):
        reader.load_checkpoint(path, weights_only=False)
    path.write_bytes(b"PK half a file")
    with pytest.raises(DnaError, match="refused, it holds a pickle that is no file of tensors"):
        reader.load_checkpoint(path)
    with pytest.raises(DnaError, match="no such file"):
        reader.load_checkpoint(tmp_path / "y.ckpt")


def test_values_that_a_bare_process_cannot_load_are_found_before_writing(tmp_path):
    assert foreign_value({"a": [1, 2.0, None, True, "x", (torch.ones(1), {3})]}) is None
    assert foreign_value({"best": {"value": numpy.float64(1.0)}}) == "['best']['value'] is a numpy.float64"
    with pytest.raises(AssertionError, match=r"\['best'\]\['value'\]"):
        AtomicCheckpointIO().save_checkpoint({"best": {"value": numpy.float64(1.0)}}, tmp_path / "best.ckpt")


def test_every_file_of_a_run_loads_safely_in_a_process_without_the_suite(tmp_path):
    run(tmp_path, max_epochs=2, val_check_interval=0.5)
    files = sorted((tmp_path / "checkpoints").iterdir())
    assert len(files) == 3
    code = (
        "import sys, torch\n"
        "for path in sys.argv[1:]:\n"
        "    assert torch.load(path, weights_only=True)['global_step'] > 0\n"
        "assert not {'dna_suite', 'lightning'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, *files], check=True, cwd=tmp_path)
