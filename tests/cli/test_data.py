import re

import pytest

from dna_suite.catalogue import DATASETS
from dna_suite.cli.data import run
from dna_suite.errors import DnaError

RECIPE = """\
task: classification
model: {backbone: vit_tiny}
data: {name: imagenet, size: 32, batch: 8, workers: 1}
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "imagenet"
    assert run(["toy", "imagenet", str(folder)]) == 0
    return folder


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return str(path)


def test_toy_says_how_to_use_it(tmp_path, capsys):
    assert run(["toy", "imagenet", str(tmp_path / "x")]) == 0
    out = capsys.readouterr().out
    assert "250 files" in out
    assert f"--data.root={tmp_path}/x" in out


def test_check_of_a_sound_set(toy, recipe, capsys):
    assert run(["check", "--config", recipe, f"--data.root={toy}"]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.startswith(("train", "val", "test"))]
    assert rows == [
        ["train", "train", "200", "10", "20", "to", "20", "0"],
        ["val", "val", "50", "10", "5", "to", "5", "0"],
        ["test", "val", "50", "10", "5", "to", "5", "0"],
    ]
    assert "10 classes: n01440764, n01855672" in out


def test_check_names_what_cannot_be_read(toy, recipe, capsys):
    path = next(iter(sorted((toy / "train").rglob("*.JPEG"))))
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    try:
        assert run(["check", "--config", recipe, f"--data.root={toy}"]) == 1
    finally:
        path.write_bytes(whole)
    out = capsys.readouterr().out
    assert f"unreadable: {path}: " in out
    assert "1 thing is wrong" in out


def test_check_of_a_missing_folder(recipe, tmp_path, capsys):
    assert run(["check", "--config", recipe, f"--data.root={tmp_path}/gone"]) == 1
    out = capsys.readouterr().out
    assert f"problem: data.root: no folder {tmp_path}/gone" in out
    assert "dna data toy imagenet" in out


def test_check_of_a_subset_of_train(toy, recipe, capsys):
    assert run(["check", "--config", recipe, f"--data.root={toy}", "--data.subset=20"]) == 0
    rows = [line.split()[2] for line in capsys.readouterr().out.splitlines() if line.startswith(("train", "val", "test"))]
    assert rows == ["20", "50", "50"]


def check_of(name: str, root, capsys) -> tuple[int, str]:
    recipe = root.parent / f"{name}.yaml"
    recipe.write_text(f"task: classification\nmodel: {{backbone: vit_tiny}}\ndata: {{name: {name}, size: 32}}\n")
    code = run(["check", "--config", str(recipe), f"--data.root={root}"])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cars", "tiny_imagenet", "fashion_mnist"])
def test_check_of_every_toy_and_of_an_empty_folder(name, tmp_path, capsys):
    root = tmp_path / "toy"
    run(["toy", name, str(root)])
    code, out = check_of(name, root, capsys)
    assert code == 0
    assert "everything can be read" in out
    # A difference from the published numbers is no fault, but is said.
    published = DATASETS["classification"][name].counts
    assert re.search(rf"note: train has (200|400) samples, {name} as published {published['train']:,}\n", out)
    (tmp_path / "empty").mkdir()
    code, out = check_of(name, tmp_path / "empty", capsys)
    assert code == 1
    assert f"problem: {tmp_path}/empty: " in out
    assert f"dna data toy {name} {tmp_path}/empty" in out


def test_check_of_a_cut_archive(tmp_path, capsys):
    run(["toy", "cifar10", str(tmp_path / "toy")])
    path = tmp_path / "toy" / "cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:-1024])
    code, out = check_of("cifar10", tmp_path / "toy", capsys)
    assert code == 1
    assert out.splitlines()[-1] == "1 thing is wrong"
    assert out.splitlines()[-2].startswith(f"problem: {path}: md5 ")


def test_check_names_the_unreadable_pictures_of_a_set_that_is_kept_in_memory(tmp_path, capsys):
    run(["toy", "tiny_imagenet", str(tmp_path / "toy")])
    paths = sorted((tmp_path / "toy").rglob("*.JPEG"))[::100]
    for path in paths:
        path.write_bytes(path.read_bytes()[:100])
    recipe = tmp_path / "r.yaml"
    recipe.write_text("task: classification\nmodel: {backbone: vit_tiny}\ndata: {name: tiny_imagenet}\n")
    assert run(["check", "--config", str(recipe), f"--data.root={tmp_path}/toy"]) == 1
    out = capsys.readouterr().out
    assert [line.split(": ")[1] for line in out.splitlines() if line.startswith("unreadable")] == [str(path) for path in paths]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chek"], "did you mean 'check'"),
        (["toy", "imagenet"], "DIR"),
        (["toy", "imagnet", "x"], "did you mean 'imagenet'"),
        (["check"], "no recipe given"),
        (["download", "cars", "x"], "data set with a public archive 'cars'"),
        (["download", "cifar10"], "DIR"),
    ],
)
def test_wrong_commands(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DnaError, match=message):
        run(arguments)
    assert list(tmp_path.iterdir()) == []


def test_wrong_value_in_the_recipe(recipe):
    with pytest.raises(DnaError, match=r"data\.batch"):
        run(["check", "--config", recipe, "--data.batch=many"])


def test_help(capsys):
    assert run([]) == 0
    assert "dna data toy NAME DIR" in capsys.readouterr().out
