import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from dna_suite.data import shards
from dna_suite.data.pictures import UnreadablePicture
from dna_suite.data.shard_index import read_index
from dna_suite.data.shards import Members, OpenShards

from .test_tar_members import write_tar

CONTENT = {f"a/{number}.jpg": b"%d" % number * (number + 1) for number in range(20)}


@pytest.fixture
def members(tmp_path) -> Members:
    for shard in range(4):
        write_tar(tmp_path / f"{shard}.tar", {name: CONTENT[name] for name in list(CONTENT)[shard::4]})
    index, _ = read_index(tmp_path)
    return Members(OpenShards(index), np.arange(len(CONTENT)))


def test_any_member_at_any_time(members, tmp_path):
    for row in np.random.default_rng(0).permutation(len(members)):
        assert members.read(tmp_path, row) == CONTENT[members[row]]
    chosen = members.select(np.array([3, 0])).select(np.array([1]))
    assert (len(chosen), chosen[0], chosen.read(tmp_path, 0)) == (1, "a/0.jpg", b"0")
    assert chosen.locate(tmp_path, 0) == f"{tmp_path}/0.tar:a/0.jpg"


def test_no_more_files_are_open_than_allowed(members, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MOST_OPEN", 2)
    for row in range(len(members)):
        assert members.read(tmp_path, row) == CONTENT[members[row]]
        assert len(members.shards.files) <= 2
    # Threads take files from each other, never a wrong one.
    rows = np.random.default_rng(0).integers(0, len(members), 400).tolist()
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda row: members.read(tmp_path, row), rows))
    assert read == [CONTENT[members[row]] for row in rows]


def count_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_files_are_closed_with_their_owner(members, tmp_path):
    before = count_files()
    members.read(tmp_path, 0)
    assert count_files() == before + 1
    members.shards.close()
    assert count_files() == before


def read_in_child(members, root, answers) -> None:
    answers.put(([members.read(root, row) for row in range(len(members))], members.shards.owner == os.getpid()))


def test_a_forked_process_opens_its_own(members, tmp_path):
    members.read(tmp_path, 0)
    context = get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=read_in_child, args=(members, tmp_path, answers))
    child.start()
    data, owned = answers.get()
    child.join()
    assert data == [CONTENT[members[row]] for row in range(len(members))]
    assert owned
    assert members.read(tmp_path, 0) == CONTENT[members[0]]


def test_a_copy_for_another_process_carries_no_files(members, tmp_path):
    members.read(tmp_path, 0)
    copy = pickle.loads(pickle.dumps(members))
    assert copy.shards.files == {}
    assert copy.read(tmp_path, 5) == CONTENT[copy[5]]


def test_a_shard_that_changed_or_is_gone(members, tmp_path):
    write_tar(tmp_path / "0.tar", {"a/0.jpg": b"other"})
    with pytest.raises(UnreadablePicture, match=r"0.tar: changed since its table was made"):
        members.read(tmp_path, 0)
    (tmp_path / "1.tar").unlink()
    row = next(row for row in range(len(members)) if members.locate(tmp_path, row).startswith(f"{tmp_path}/1.tar"))
    with pytest.raises(UnreadablePicture, match=rf"1.tar:{members[row]}: No such file"):
        members.read(tmp_path, row)


def test_a_shard_that_shrinks_under_an_open_file(members, tmp_path):
    last = max(range(len(members)), key=lambda row: (members.shards.index.shard[row] == 0, members.shards.index.offset[row]))
    members.read(tmp_path, last)
    os.truncate(tmp_path / "0.tar", 600)
    with pytest.raises(UnreadablePicture, match=r"0.tar:.*: cut short"):
        members.read(tmp_path, last)
