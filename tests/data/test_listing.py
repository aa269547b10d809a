import pytest
import torch

from dna_suite.data.listing import PictureListing
from dna_suite.data.pictures import UnreadablePicture
from dna_suite.data.transforms import CentreCrop
from dna_suite.errors import DnaError

from .pictures import COLOURS, write_solid


def listing(source, on_error: str = "raise") -> PictureListing:
    return PictureListing(str(source), CentreCrop(16, 1.0), 16, 10**6, on_error)


def test_folder_is_searched_with_everything_below_it_and_sorted(tmp_path):
    for name in ("b.png", "a/z.JPG", "a/deep/y.webp", "c.png"):
        write_solid(tmp_path / name, COLOURS["a"])
    for name in (".hidden.png", "notes.txt", "__MACOSX/x.png", ".cache/x.png"):
        write_solid(tmp_path / "tmp.png", COLOURS["a"])
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / "tmp.png").rename(tmp_path / name)
    found = listing(tmp_path)
    assert [found[i]["path"] for i in range(len(found))] == [
        str(tmp_path / name) for name in ("a/deep/y.webp", "a/z.JPG", "b.png", "c.png")
    ]
    assert found[2]["image"].shape == (3, 16, 16)
    assert found[2]["image"][:, 0, 0].tolist() == list(COLOURS["a"])


def test_one_file_of_any_name(tmp_path):
    path = write_solid(tmp_path / "x.png", COLOURS["b"]).rename(tmp_path / "x.data")
    assert listing(path)[0]["path"] == str(path)


@pytest.mark.parametrize(("name", "message"), [("gone", "no such file or folder"), ("empty", "no picture")])
def test_nothing_there(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DnaError, match=f"--input {tmp_path}/{name}: {message}"):
        listing(tmp_path / name)


def test_unreadable_file(tmp_path):
    (tmp_path / "x.png").write_bytes(b"no picture")
    with pytest.raises(UnreadablePicture, match=f"{tmp_path}/x.png"):
        listing(tmp_path)[0]
    sample = listing(tmp_path, "skip")[0]
    assert (sample["counted"], sample["skipped"]) == (False, f"{tmp_path}/x.png")
    assert torch.equal(sample["image"], torch.zeros(3, 16, 16, dtype=torch.uint8))
