import logging
import os
import zipfile

import pytest
import torch

from dna_suite.backbones.files import fault_of
from dna_suite.errors import DnaError
from dna_suite.runs.checkpoint_files import (
    best_checkpoint,
    newest_checkpoint,
    part_of,
    remove_stale_parts,
    step_files,
    step_name,
)


def write(path, value=1.0):
    torch.save({"state_dict": {"w": torch.full((64,), value)}}, path)
    return path


def flip_bit(path):
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = next(entry for entry in archive.infolist() if entry.filename.endswith("data/0"))
    content[member.header_offset + 150] ^= 1
    path.write_bytes(content)


def test_steps_sort_as_numbers_and_other_names_are_ignored(tmp_path):
    for name in (step_name(9), step_name(123456789), step_name(10), "best.ckpt", "step1.ckpt", ".step00000011.ckpt.1.part"):
        (tmp_path / name).touch()
    assert list(step_files(tmp_path)) == [9, 10, 123456789]
    assert step_files(tmp_path / "missing") == {}


def test_an_empty_folder_is_a_normal_start(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "missing") is None


def test_a_flipped_bit_is_found_where_torch_load_finds_none(tmp_path):
    path = write(tmp_path / step_name(1))
    assert fault_of(path) is None
    flip_bit(path)
    changed = torch.load(path, weights_only=True)["state_dict"]["w"]
    assert not torch.equal(changed, torch.ones(64))
    assert "checksum" in fault_of(path)


def test_the_newest_whole_file_is_taken_and_the_others_are_named(tmp_path, caplog):
    whole = write(tmp_path / step_name(1))
    flip_bit(write(tmp_path / step_name(2)))
    cut = write(tmp_path / step_name(3))
    cut.write_bytes(cut.read_bytes()[:700])
    with caplog.at_level(logging.WARNING):
        assert newest_checkpoint(tmp_path) == whole
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert step_name(3) in messages[0]
    assert "cut off" in messages[0]
    assert step_name(2) in messages[1]
    assert "checksum" in messages[1]


def test_files_of_which_none_is_whole_are_an_error_not_a_fresh_start(tmp_path):
    (tmp_path / step_name(4)).write_bytes(b"")
    with pytest.raises(DnaError, match=rf"{step_name(4)} is cut off or no checkpoint \(0 bytes\)"):
        newest_checkpoint(tmp_path)


def test_without_a_best_checkpoint_the_newest_is_taken(tmp_path):
    with pytest.raises(DnaError, match="holds no checkpoint yet"):
        best_checkpoint(tmp_path)
    write(tmp_path / step_name(4))
    newest = write(tmp_path / step_name(6))
    assert best_checkpoint(tmp_path) == newest
    flip_bit(write(tmp_path / "best.ckpt"))
    with pytest.raises(DnaError, match="checksum"):
        best_checkpoint(tmp_path)


def test_part_files_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path):
    # The kernel's highest process number is 2^22.
    dead, alive = tmp_path / f".best.ckpt.{2**22 + 1}.part", part_of(tmp_path / step_name(1))
    parent, foreign = tmp_path / f".best.ckpt.{os.getppid()}.part", tmp_path / "notes.part"
    for path in (dead, alive, parent, foreign):
        path.touch()
    assert remove_stale_parts(tmp_path) == [dead]
    assert {path.name for path in tmp_path.iterdir()} == {alive.name, parent.name, foreign.name}
