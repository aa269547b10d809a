import hashlib
from pathlib import Path

import pytest

from dna_suite.data import download as module
from dna_suite.data.download import PUBLIC, download
from dna_suite.errors import DnaError

CONTENT = b"what was published" * 1000


@pytest.fixture
def source(tmp_path, monkeypatch) -> Path:
    """A public archive of the set cifar10 that lies in a folder instead of on a server."""
    path = tmp_path / "server" / "a.tar.gz"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    total = hashlib.md5(CONTENT).hexdigest()
    monkeypatch.setitem(module.PUBLIC, "cifar10", lambda: [(path.as_uri(), "a.tar.gz", total)])
    return path


def test_file_arrives_whole_and_is_not_fetched_twice(source, tmp_path):
    lines: list[str] = []
    assert download("cifar10", tmp_path / "new", lines.append) == [tmp_path / "new" / "a.tar.gz"]
    assert (tmp_path / "new" / "a.tar.gz").read_bytes() == CONTENT
    source.unlink()
    download("cifar10", tmp_path / "new", lines.append)
    assert lines[1] == f"{tmp_path}/new/a.tar.gz: there already"


def test_other_content_is_not_kept(source, tmp_path):
    source.write_bytes(CONTENT[:-1])
    with pytest.raises(DnaError, match=r"md5 [0-9a-f]{32}, expected [0-9a-f]{32}; nothing was kept"):
        download("cifar10", tmp_path / "new", print)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_that_is_in_the_way_stays(source, tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(b"mine")
    with pytest.raises(DnaError, match="is there with another md5 sum"):
        download("cifar10", tmp_path, print)
    assert (tmp_path / "a.tar.gz").read_bytes() == b"mine"


def test_no_server(source, tmp_path):
    source.unlink()
    with pytest.raises(DnaError, match=f"fetch it by hand to {tmp_path}/new/a.tar.gz"):
        download("cifar10", tmp_path / "new", print)
    assert list((tmp_path / "new").iterdir()) == []


def test_sets_without_a_public_archive(tmp_path):
    with pytest.raises(DnaError, match="data set with a public archive 'cars'"):
        download("cars", tmp_path / "new", print)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", PUBLIC)
def test_addresses_and_sums_are_torchvisions(name):
    for address, file, total in PUBLIC[name]():
        assert address.startswith("http")
        assert address.endswith(file)
        assert len(total) == 32
