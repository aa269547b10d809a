import pytest

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chek"], "did you mean 'check'"),
        (["toy", "imagenet"], "DIR"),
        (["toy", "imagnet", "x"], "did you mean 'imagenet'"),
        (["check"], "no recipe given"),
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
