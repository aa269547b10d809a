"""ImageNet-A, -R and -O as folders: class lists, columns, toy twins, and folders that are something else."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dna_suite.data.check import check_split
from dna_suite.data.parts import NO_LABEL
from dna_suite.data.real_labels import read_real_labels
from dna_suite.data.robustness import DIGITS, RobustnessSets
from dna_suite.data.robustness_folders import PUBLISHED, SetFolder, find_set, known_ids, require_published
from dna_suite.data.samples import PictureSamples
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
    data = RobustnessSets(root=str(toy), workers=0, size=32, **{"subset_ok": True, **keys})
    data.take_classes(SYNSETS)
    return data


def folder_of(path, names):
    return SetFolder(Path(path), tuple(names), tuple(names))


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
        folder = folder_of(key, [ids[index] for index in listed[key]])
        require_published(key, folder, "")
        assert list(folder.names) == sorted(folder.names)
        assert sum(listed[key]) == PUBLISHED[key].index_sum
        wrong = next(other for other in ("a", "r") if other != key)
        with pytest.raises(DnaError, match=f"they are those of imagenet-{key}"):
            require_published(wrong, folder, "")


def test_199_folders_and_another_200_are_refused(listed):
    names = [known_ids()[index] for index in listed["a"]]
    with pytest.raises(DnaError, match="199 class folders, imagenet-a has 200"):
        require_published("a", folder_of("x", names[1:]), "way on")
    other = sorted({*names[1:], known_ids()[0]})
    with pytest.raises(DnaError, match="sum to 102172, not 102178"):
        require_published("a", folder_of("x", other), "way on")


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
        name = samples.name(index).split("/")[1]
        assert SYNSETS[samples.labels[index]] == name
    assert (turned.samples("test").labels == 9 - samples.labels).all()
    assert straight.parts.names == ["a", "r", "o", "val"]
    for number, key in enumerate(straight.sets):
        ids = [SYNSETS[column] for column in straight.columns[key]]
        assert ids == sorted(ids)
        assert (turned.columns[key] == 9 - straight.columns[key]).all()
        own = samples.labels[straight.parts.of == number]
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
    for key in ("a", "r", "o", "val"):
        for index in listed["o" if key == "val" else key]:
            folder = tmp_path / PUBLISHED[key].folder / known_ids()[index]
            folder.mkdir(parents=True)
            (folder / "1.jpg").touch()
    data = RobustnessSets(root=str(tmp_path))
    with pytest.raises(DnaError, match="imagenet-a: 200 pictures, published 7,500"):
        data.counts()
    small = {key: dataclasses.replace(entry, pictures=200) for key, entry in PUBLISHED.items()}
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


def test_folders_that_are_class_indices_go_by_their_number(tmp_path):
    root = make_sets(tmp_path / "sets", ["10", "2", "0999"])
    folder = find_set(root / "val", "v2")
    # As texts, 0999 and 10 come before 2 (modestyachts/ImageNetV2#10).
    assert folder.names == ("2", "10", "0999")
    assert folder.ids == tuple(known_ids()[index] for index in (2, 10, 999))
    (root / "val" / "1000").mkdir()
    with pytest.raises(DnaError, match="folder 1000 is no class index of ImageNet-1k, 0 to 999"):
        find_set(root / "val", "v2")
    (root / "val" / "1000").rmdir()
    (root / "val" / "02").mkdir()
    with pytest.raises(DnaError, match="two folders are class 2, one of them"):
        find_set(root / "val", "v2")
    # Some who pass it on named its folders by id.
    named = make_sets(tmp_path / "named", list(SYNSETS))
    assert find_set(named / "val", "v2").ids == SYNSETS


def test_v2_sketch_and_real_of_the_toy(toy):
    data = sets_of(toy, sets=("real", "v2", "sketch"))
    assert data.parts.names == list(data.sets) == ["v2", "sketch", "real"]
    # Of val every tenth picture has no ReaL label.
    assert data.counts() == {"v2": 360, "sketch": 240, "real": 324}
    samples = data.samples("test")
    for index in (0, 359, 360, 599, 600, 923):
        name = samples.name(index).split("/")[1]
        wnid = known_ids()[int(name)] if name.isdecimal() else name
        assert SYNSETS[samples.labels[index]] == wnid
    assert data.parts.set_of(np.array([0, 359, 360, 600])).tolist() == [0, 0, 1, 2]
    # The first class has 36 pictures, of which the fourth has a second label.
    assert data.parts.right_classes(np.array([0, 600, 603])).tolist() == [[0, NO_LABEL], [0, NO_LABEL], [0, 1]]
    assert data.protocol()["real_labels"] == str(toy / "real.json")
    assert sets_of(toy).parts.right_classes(np.array([0, 239])).tolist() == [[0], [5]]


def test_published_sets_of_all_classes(tmp_path, monkeypatch):
    known = known_ids()
    for index, name in enumerate(known):
        for place in (f"val/{name}", f"sketch/{name}", f"imagenetv2-matched-frequency-format-val/{index}"):
            (tmp_path / place).mkdir(parents=True)
        (tmp_path / "val" / name / f"ILSVRC2012_val_{index + 2:08d}.JPEG").touch()
    (tmp_path / "sketch" / known[0] / "1.JPEG").touch()
    data = RobustnessSets(root=str(tmp_path), sets=("sketch",))
    with pytest.raises(DnaError, match="sketch: 1 pictures, published 50,889"):
        data.counts()
    data = RobustnessSets(root=str(tmp_path), sets=("real",))
    # Of the pictures 2 to 1,001 those that people saw a class of ImageNet in.
    seen = sum(map(bool, read_real_labels(None)[1:1001]))
    with pytest.raises(DnaError, match=f"val: {seen} pictures, published 46,837"):
        data.counts()
    small = {**PUBLISHED, "real": dataclasses.replace(PUBLISHED["real"], pictures=seen)}
    monkeypatch.setattr("dna_suite.data.robustness.PUBLISHED", small)
    assert data.counts() == {"real": seen}
    assert data.protocol() == {"classes": 1000, "folders": {"real": 1000}, "subset_ok": False, "real_labels": "timm"}
    assert set(data.parts.right_classes(np.array([0]))[0].tolist()) - {NO_LABEL} == {970, 795}
    (tmp_path / "sketch" / known[0] / "1.JPEG").unlink()
    (tmp_path / "sketch" / known[0]).rmdir()
    with pytest.raises(DnaError, match="sketch: 999 class folders, sketch has 1000"):
        RobustnessSets(root=str(tmp_path), sets=("sketch",)).counts()


@pytest.fixture
def shading(monkeypatch):
    """Corruptions that take ten levels off for each step of severity, and one for fog, in place of the package's."""

    def corrupt(pixels, corruption_name, severity, seed=None):
        return pixels - np.minimum(pixels, 10 * severity + (corruption_name == "fog")).astype(np.uint8)

    monkeypatch.setattr("dna_suite.data.corruptions.find_corrupt", lambda: corrupt)
    monkeypatch.setattr("dna_suite.data.robustness.find_corrupt", lambda: corrupt)


def test_a_picture_comes_under_every_corruption_in_turn(toy, shading, monkeypatch):
    decoded = []
    decode = PictureSamples.read
    monkeypatch.setattr(PictureSamples, "read", lambda self, index: decoded.append(index) or decode(self, index))
    data = sets_of(toy, sets=("c", "a"), corruptions=("fog", "snow"), severities=(5, 1, 1))
    # In the published order, whatever was typed.
    assert data.parts.names == ["a", "c/snow/1", "c/snow/5", "c/fog/1", "c/fog/5"]
    assert data.counts() == {"a": 240, "c": 4 * 360}
    samples = data.samples("test")
    assert len(samples) == 240 + 4 * 360
    assert data.parts.of[238:246].tolist() == [0, 0, 1, 2, 3, 4, 1, 2]
    assert data.parts.set_of(np.array([239, 240, 243])).tolist() == [0, 1, 1]
    plain = sets_of(toy, sets=("real",))
    decoded.clear()
    shown = [samples[240 + turn]["image"].int() for turn in range(4)]
    assert len(decoded) == 1
    assert samples.name(240) == samples.name(243) == plain.samples("test").name(0)
    original = plain.samples("test")[0]["image"].int()
    for image, step in zip(shown, (10, 50, 11, 51), strict=True):
        assert (image == (original - step).clamp(min=0)).all()
    assert samples[239]["image"].shape == (3, 32, 32)
    # A file is read once by the check, however often it is shown.
    decoded.clear()
    check_split(data, "test", threads=1, done=[])
    assert len(decoded) == 240 + 360
    assert data.published_counts() == {"test": 7_500 + 4 * 50_000}


def test_corruptions_of_a_picture_do_not_depend_on_what_else_is_tested(toy, monkeypatch):
    def corrupt(pixels, corruption_name, severity, seed=None):
        return np.random.randint(0, 256, pixels.shape).astype(np.uint8)

    monkeypatch.setattr("dna_suite.data.corruptions.find_corrupt", lambda: corrupt)
    monkeypatch.setattr("dna_suite.data.robustness.find_corrupt", lambda: corrupt)
    alone = sets_of(toy, sets=("c",), corruptions=("fog",)).samples("test")
    beside = sets_of(toy, sets=("c", "sketch"), corruptions=("snow", "fog"), severities=(2,)).samples("test")
    # Picture 3 under fog at severity 2.
    assert (alone[5 * 3 + 1]["image"] == beside[240 + 2 * 3 + 1]["image"]).all()
    assert (alone[5 * 3 + 1]["image"] != alone[5 * 4 + 1]["image"]).any()


def test_sets_that_there_are_not(toy):
    with pytest.raises(DnaError, match=r"unknown set 'data.sets sketches'.*did you mean 'data.sets sketch'"):
        sets_of(toy, sets=("a", "sketches"))
    with pytest.raises(DnaError, match=r"unknown set 'data.sets val'"):
        sets_of(toy, sets=("val",))
    with pytest.raises(DnaError, match=r"data.sets is empty"):
        sets_of(toy, sets=())


def test_val_alone_needs_no_root(toy, shading):
    data = RobustnessSets(val=str(toy / "val"), sets=("c",), corruptions=("fog",), subset_ok=True, size=32)
    data.take_classes(SYNSETS)
    assert data.counts() == {"c": 5 * 360}
    assert data.samples("test").name(0).startswith("val/n01440764/")
