"""ReaL labels: the copy that timm brings, files in its form, and files that are something else."""

import json

import pytest

from dna_suite.data.real_labels import labels_of, read_real_labels
from dna_suite.errors import DnaError


def test_the_published_labels():
    labels = read_real_labels(None)
    assert len(labels) == 50_000
    # Beyer et al. 2020: 46,837 pictures have a label.
    assert sum(map(bool, labels)) == 46_837
    assert labels_of(labels, "ILSVRC2012_val_00000001.JPEG") == []
    assert labels_of(labels, "val/n09193705/ILSVRC2012_val_00000002.JPEG") == [970, 795]


def test_a_file_of_one_s_own(tmp_path):
    path = tmp_path / "real.json"
    path.write_text(json.dumps([[1, 2], []]))
    assert read_real_labels(path) == [[1, 2], []]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no JSON"),
        ('{"1": [2]}', "is no list"),
        ("[[1], 2]", "entry 1 is 2, not a list of class indices 0 to 999"),
        ("[[1], [1000]]", "entry 1 is .1000., not a list"),
        ('[["n01440764"]]', "entry 0 is .*not a list"),
        ("[[true]]", "entry 0 is .True., not a list"),
    ],
)
def test_a_file_that_is_something_else(text, reason, tmp_path):
    path = tmp_path / "real.json"
    path.write_text(text)
    with pytest.raises(DnaError, match=f"data.real_labels: .*real.json:? {reason}"):
        read_real_labels(path)


def test_a_missing_file_and_names_without_a_number(tmp_path):
    with pytest.raises(DnaError, match=r"data.real_labels: .*none.json: No such file"):
        read_real_labels(tmp_path / "none.json")
    with pytest.raises(DnaError, match=r"dog.jpg: ReaL labels go by file names such as ILSVRC2012_val_00000001.JPEG"):
        labels_of([[1]], "dog.jpg")
    for number in (0, 2):
        with pytest.raises(DnaError, match=r"there are ReaL labels for the pictures 1 to 1"):
            labels_of([[1]], f"ILSVRC2012_val_{number:08d}.JPEG")
