"""ImageNet-A, -R and -O as folders: class lists, columns, toy twins, and folders that are something else."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dna_suite.data import robustness_folders
from dna_suite.data.robustness import DIGITS, SETS, RobustnessSets
from dna_suite.data.robustness_folders import PUBLISHED, SetFolder, find_set, known_ids, require_published
from dna_suite.data.toy import write_toy
from dna_suite.data.toy_pictures import SYNSETS
from dna_suite.errors import DnaError

GOLDEN = Path(__file__).parents[1] / "golden" / "imagenet_subsets.json"


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy("robustness", tmp_path_factory.mktemp("toy") / "robustness")


@pytest.fixture
def listed():
    """Class indices of A, O and R, as the sets' authors list them."""
    return {name.lower(): indices for name, indices in json.loads(GOLDEN.read_text())["class_indices"].items()}


def sets_of(toy, **keys):
    data = RobustnessSets(root=str(toy), subset_ok=True, workers=0, size=32, **keys)
    data.take_classes(SYNSETS)
    return data


def make_sets(root, names, pictures=1):
    """Folders in the layout of the sets, with one tiny picture in each class folder."""
    for key in ("imagenet-a", "imagenet-r", "imagenet-o", "val"):
        for name in names:
            (root / key / name).mkdir(parents=True)
            for number in range(pictures):
                Image.new("RGB", (8, 8)).save(root / key / name / f"{number}.jpg")
    return root


def test_the_authors_class_lists_are_taken_for_what_they_are(listed):
    ids = known_ids()
    for key in ("a", "o", "r"):
        folder = SetFolder(Path(key), tuple(ids[index] for index in listed[key]))
        require_published(key, folder, "")
        assert list(folder.names) == sorted(folder.names)
        assert sum(listed[key]) == PUBLISHED[key].index_sum
        wrong = next(other for other in ("a", "r") if other != key)
        with pytest.raises(DnaError, match=f"they are those of imagenet-{key}"):
            require_published(wrong, folder, "")


def test_199_folders_and_another_200_are_refused(listed):
    names = [known_ids()[index] for index in listed["a"]]
    with pytest.raises(DnaError, match="199 class folders, imagenet-a has 200"):
        require_published("a", SetFolder(Path("x"), tuple(names[1:])), "way on")
    other = sorted({*names[1:], known_ids()[0]})
    with pytest.raises(DnaError, match="sum to 102172, not 102178"):
        require_published("a", SetFolder(Path("x"), tuple(other)), "way on")


def test_the_toy_twin_has_the_layout_and_counts(toy):
    data = sets_of(toy)
    # 36 test pictures of each of six digits in val.
    assert data.counts() == {"a": 240, "r": 240, "o": 240, "val": 216}
    assert {key: len(folder.names) for key, folder in data.folders.items()} == dict.fromkeys(("a", "r", "o", "val"), 6)
    assert data.folders["val"].names == data.folders["o"].names
    assert data.protocol() == {"classes": 10, "folders": {"a": 6, "r": 6, "o": 6, "val": 6}, "subset_ok": True}
    assert sorted(path.name for path in (toy / "val").iterdir()) == sorted(SYNSETS)
    pictures = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in sorted((toy / "imagenet-o").rglob("*.jpg"))])
    # No two pictures are the same.
    assert len(np.unique(pictures.reshape(len(pictures), -1), axis=0)) == 240


def test_labels_are_looked_up_by_id_in_the_model_s_own_order(toy):
    straight, turned = sets_of(toy), sets_of(toy)
    turned.take_classes(SYNSETS[::-1])
    samples = straight.samples("test")
    for index in (0, 239, 240, 719, 720, 935):
        name = samples.paths[index].split("/")[1]
        assert SYNSETS[samples.labels[index]] == name
    assert (turned.samples("test").labels == 9 - samples.labels).all()
    for key in SETS:
        ids = [SYNSETS[column] for column in straight.columns[key]]
        assert ids == sorted(ids)
        assert (turned.columns[key] == 9 - straight.columns[key]).all()
        own = samples.labels[straight.sets == SETS.index(key)]
        assert set(own) == set(straight.columns[key])


def test_toy_folders_stand_for_digits_only_where_the_set_is_the_toy(toy):
    data = RobustnessSets(root=str(toy), subset_ok=True)
    data.take_classes(DIGITS)
    with pytest.raises(DnaError, match="the model's class list has no n01440764"):
        data.counts()
    twin = RobustnessSets(root=str(toy), subset_ok=True, toy=True)
    twin.take_classes(DIGITS)
    assert twin.ids == {name: digit for digit, name in enumerate(SYNSETS)}


def test_pictures_of_the_toy_come_out_as_the_digits_model_saw_them(toy):
    sample = sets_of(toy).samples("test")[720]
    assert sample["image"].shape == (3, 32, 32)
    # White ink on black paper, up to JPEG.
    assert float(sample["image"].float().mean()) < 110
    assert int(sample["image"].max()) > 200


def test_without_leave_a_subset_is_refused(toy):
    data = RobustnessSets(root=str(toy))
    data.take_classes(SYNSETS)
    with pytest.raises(DnaError, match=r"the model has 10 classes, the protocol is for 1,000: data.subset_ok"):
        data.counts()
    data.take_classes(None)
    with pytest.raises(DnaError, match="6 class folders, imagenet-a has 200"):
        data.counts()


def test_published_counts_of_pictures_are_asked_for(tmp_path, listed, monkeypatch):
    for key, entry in PUBLISHED.items():
        for index in listed["o" if key == "val" else key]:
            folder = tmp_path / entry.folder / known_ids()[index]
            folder.mkdir(parents=True)
            (folder / "1.jpg").touch()
    data = RobustnessSets(root=str(tmp_path))
    with pytest.raises(DnaError, match="imagenet-a: 200 pictures, published 7,500"):
        data.counts()
    small = {key: robustness_folders.PublishedSet(entry.folder, 200, entry.index_sum) for key, entry in PUBLISHED.items()}
    monkeypatch.setattr("dna_suite.data.robustness.PUBLISHED", small)
    assert data.counts() == {"a": 200, "r": 200, "o": 200, "val": 200}
    # The ordinary 1,000 classes: columns are the authors' indices.
    assert {key: data.columns[key].tolist() for key in ("a", "o", "r")} == listed


def test_folders_that_are_something_else(tmp_path):
    with pytest.raises(DnaError, match=r"no folder .*imagenet-a: imagenet-a is missing"):
        find_set(tmp_path / "imagenet-a", "a")
    (tmp_path / "imagenet-a.tar").touch()
    with pytest.raises(DnaError, match=r"imagenet-a.tar is an archive or a file: unpack it"):
        find_set(tmp_path / "imagenet-a", "a")
    with pytest.raises(DnaError, match=r"imagenet-a.tar is an archive or a file: unpack it"):
        find_set(tmp_path / "imagenet-a.tar", "a")
    flat = make_sets(tmp_path / "flat", ["."])
    with pytest.raises(DnaError, match="1 pictures but no class folders"):
        find_set(flat / "val", "val")
    numbers = make_sets(tmp_path / "numbers", ["0", "1", "10"])
    with pytest.raises(DnaError, match=r"its folders are numbers \(0, 1, 10\)"):
        find_set(numbers / "val", "val")
    unknown = make_sets(tmp_path / "unknown", ["n01440764", "n01440765"])
    with pytest.raises(DnaError, match=r"folder 'n01440765' is no id of ImageNet-1k.*did you mean n01440764"):
        find_set(unknown / "val", "val")
    nested = make_sets(tmp_path / "nested", ["imagenet-a"])
    with pytest.raises(DnaError, match="folder 'imagenet-a' is no id"):
        find_set(nested / "imagenet-a", "a")
    with pytest.raises(DnaError, match=r"val: no folder n01440767, which imagenet-o has \(1 of 2 are missing\)"):
        find_set(make_sets(tmp_path / "one", ["n01440764"]) / "val", "val", only=("n01440764", "n01440767"))


def test_an_archive_for_the_root_and_an_empty_set(tmp_path):
    file = tmp_path / "sets.tar"
    file.touch()
    with pytest.raises(DnaError, match="is a file: unpack the archives"):
        RobustnessSets(root=str(file)).counts()
    root = make_sets(tmp_path / "sets", list(SYNSETS), pictures=0)
    with pytest.raises(DnaError, match="imagenet-a: no picture in its class folders"):
        sets_of(root).counts()


def test_only_a_test_part(toy):
    with pytest.raises(DnaError, match="no val part: it is for dna test"):
        sets_of(toy).samples("val")


def test_hidden_files_and_readmes_are_no_pictures(toy, tmp_path):
    root = make_sets(tmp_path / "sets", list(SYNSETS))
    for key in ("imagenet-a", "imagenet-r"):
        (root / key / "README.txt").touch()
        (root / key / ".cache").mkdir()
        (root / key / SYNSETS[0] / "._0.jpg").touch()
    assert sets_of(root).counts() == {"a": 10, "r": 10, "o": 10, "val": 10}
