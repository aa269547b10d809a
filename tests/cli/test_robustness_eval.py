"""`dna test --config tasks/robustness.yaml` on a run: result, files, tables, wrong input."""

import csv
import json
import shutil
import tarfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dna_suite.backbones.weights import load_model
from dna_suite.cli.main import main
from dna_suite.data.corruptions import find_corrupt
from dna_suite.data.robustness import RobustnessSets
from dna_suite.data.toy import write_toy
from dna_suite.data.toy_pictures import SYNSETS

TOY = ["--config=tasks/robustness.yaml", "--config=configs/robustness_toy.yaml"]
PICTURES = 3 * 240 + 216


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run of the digits that was trained and tested for a moment, and tested on the toy sets."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["--config=tasks/digits.yaml", "--config=configs/smoke.yaml", "--data.batch=64", "--trainer.max_epochs=2"]
        # Of the network as it was trained no test depends on the drop path, which is in the checkpoint's description.
        model = ["--model.attention.name=dna", "--model.drop_path=0.1"]
        assert main(["fit", *words, *model, "--trainer.limit_train_batches=1.0"]) == 0
        (folder / "runs/smoke/digits/dna/seed0").rename(folder / "run")
        before = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
        assert main(["test", *TOY, "--run=run"]) == 0
        assert all(path.read_bytes() == content for path, content in before.items())
    return folder


@pytest.fixture(autouse=True)
def inside(home, monkeypatch):
    monkeypatch.chdir(home)


def refusal(capsys, *words):
    """The one line that a refused command ends with."""
    capsys.readouterr()
    assert main(["test", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback" not in "\n".join(lines)
    return lines[-1]


def metrics():
    return json.loads(Path("run/evaluations/robustness/result.json").read_text())["metrics"]


def test_a_result_of_its_own_with_metrics_and_their_samples():
    record = json.loads(Path("run/evaluations/robustness/result.json").read_text())
    assert (record["recipe"], record["task"], record["label"], record["toy"]) == ("robustness", "robustness", "dna", True)
    assert record["data"]["counts"] == {"a": 240, "r": 240, "o": 240, "val": 216}
    assert record["data"]["protocol"]["subset_ok"] is True
    # As the digits were trained, at the size of the run.
    assert record["transform"]["crop"] == 32
    assert record["transform"]["mean"] == [0.308, 0.308, 0.308]
    samples = {name: entry["samples"] for name, entry in record["metrics"].items()}
    pictures = ("top1", "top1_all_classes", "rmsce", "rmsce_all_bins", "aurra")
    expected = {f"test/{name}/{key}": 240 for name in ("a", "r") for key in pictures}
    assert samples == expected | {f"test/o/{key}": 240 + 216 for key in ("fpr95", "auroc", "aupr", "aupr_chance")}
    assert record["metrics"]["test/o/aupr_chance"]["value"] == 240 / 456


def test_choosing_among_the_set_s_classes_is_easier_than_among_all():
    found = metrics()
    for name in ("a", "r"):
        assert found[f"test/{name}/top1"]["value"] > found[f"test/{name}/top1_all_classes"]["value"]


def test_every_picture_is_listed_and_gives_the_metrics_again(capsys):
    with Path("run/evaluations/robustness/images.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len({row["path"] for row in rows}) == PICTURES
    assert rows[0]["path"].startswith("imagenet-a/n01440764/")
    for name in ("a", "r"):
        own = [row for row in rows if row["set"] == name]
        assert sum(int(row["correct"]) for row in own) / 240 == metrics()[f"test/{name}/top1"]["value"]
        # Six classes.
        assert all(1 / 6 <= float(row["confidence"]) <= 1 for row in own)
    before = metrics()
    place = Path("run/evaluations/robustness/result.json")
    record = json.loads(place.read_text())
    record["metrics"]["test/a/aurra"]["value"] = 0.0
    place.write_text(json.dumps(record))
    figures = [place.with_name(name) for name in ("reliability.png", "response_rate.png")]
    drawn = [np.asarray(Image.open(path)) for path in figures]
    for path in figures:
        path.unlink()
    assert main(["report", "run/evaluations/robustness", "--rescore"]) == 0
    assert metrics() == before
    assert all((np.asarray(Image.open(path)) == picture).all() for path, picture in zip(figures, drawn, strict=True))
    assert "scored run/evaluations/robustness/images.csv again" in capsys.readouterr().err


def test_a_broken_line_of_the_list_is_named(tmp_path, capsys):
    shutil.copytree("run/evaluations/robustness", tmp_path / "robustness")
    lines = (tmp_path / "robustness" / "images.csv").read_text().splitlines()
    lines[4] = "a,x.jpg,0.5,2,0"
    (tmp_path / "robustness" / "images.csv").write_text("\n".join(lines))
    assert main(["report", str(tmp_path), "--rescore"]) == 2
    assert "images.csv:5: 'a,x.jpg,0.5,2,0' is no line" in capsys.readouterr().err
    (tmp_path / "robustness" / "images.csv").write_text("\n".join(lines[:4]))
    assert main(["report", str(tmp_path), "--rescore"]) == 2
    assert "images.csv: 3 lines of set a, the test had 240" in capsys.readouterr().err
    (tmp_path / "robustness" / "images.csv").write_text("\n".join([*lines[:4], "c/fog/6,x.jpg,0.5,1,0"]))
    assert main(["report", str(tmp_path), "--rescore"]) == 2
    assert "images.csv:5: 'c/fog/6,x.jpg,0.5,1,0' is no line" in capsys.readouterr().err
    (tmp_path / "robustness" / "images.csv").write_text("set,path\n")
    assert main(["report", str(tmp_path), "--rescore"]) == 2
    assert "images.csv:1: the first line is set,path,confidence,correct,correct_all_classes" in capsys.readouterr().err
    (tmp_path / "robustness" / "images.csv").unlink()
    assert main(["report", str(tmp_path), "--rescore"]) == 2
    assert "no images.csv below" in capsys.readouterr().err


def test_tables_have_the_paper_s_rows_beside_and_name_the_subset(capsys):
    assert main(["report", "run/evaluations"]) == 0
    text = capsys.readouterr().out
    assert "toy data: robustness: vit_digits, tiny, test" in text
    rows = [line.split()[2:] for line in text.splitlines() if line.startswith("paper: +DnA")]
    # By set and in catalogue order: top-1, RMSCE, AURRA; FPR95, AUROC, AUPR.
    assert [value for row in rows for value in row] == ["27.7", "24.2", "40.7", "90.5", "66.1", "24.3", "46.5", "5.3", "75.5"]
    assert "note: data.subset_ok: not the published protocol: class folders a 6, r 6, o 6, val 6, of 10 classes" in text
    assert "not to be compared with toy data" in text


def test_logits_and_right_answers_of_another_batch_size_agree():
    model = load_model("run")
    data = RobustnessSets(toy=True, subset_ok=True, size=32, mean=(0.308,) * 3, std=(0.35,) * 3)
    data.take_classes(model.classes)
    samples = data.samples("test")
    pictures = torch.stack([samples[index]["image"] for index in range(PICTURES)]).float() / 255
    pictures = (pictures - 0.308) / 0.35
    with torch.inference_mode():
        one, other = (torch.cat([model(part) for part in pictures.split(size)]) for size in (64, 37))
    # Sums of float32 in another order: 1e-7 of logits of a few units, many times over.
    assert (one - other).abs().max() < 1e-5
    assert (one.argmax(1) == other.argmax(1)).all()


def test_batches_of_another_size_agree(home):
    shutil.copytree("run", "other", dirs_exist_ok=True)
    shutil.rmtree("other/evaluations")
    assert main(["test", *TOY, "--run=other", "--data.eval_batch=37"]) == 0
    ours, theirs = (Path(run, "evaluations/robustness/images.csv").read_text().splitlines()[1:] for run in ("run", "other"))
    for line, other in zip(ours, theirs, strict=True):
        (*place, confidence, right, right_all), (*where, found, hit, hit_all) = line.split(","), other.split(",")
        assert (place, right, right_all) == (where, hit, hit_all)
        # Logits of other batches differ by float32 rounding, 1e-5 at most.
        assert float(confidence) == pytest.approx(float(found), abs=1e-5)


def test_other_sets_have_a_recipe_and_a_folder_of_their_own(capsys):
    before = metrics()
    words = ["--config=tasks/imagenet_shifts.yaml", TOY[1], "--run=run"]
    place = Path("run/evaluations/imagenet_shifts")
    place.mkdir(parents=True)
    (place / "corruptions.csv").write_text("of an earlier test")
    assert main(["test", *words]) == 0
    assert sorted(path.name for path in place.iterdir()) == ["images.csv", "reliability.png", "response_rate.png", "result.json"]
    record = json.loads((place / "result.json").read_text())
    assert metrics() == before
    assert record["data"]["counts"] == {"v2": 360, "sketch": 240, "real": 324}
    keys = ("top1", "rmsce", "rmsce_all_bins", "aurra")
    samples = {f"test/{name}/{key}": count for name, count in record["data"]["counts"].items() for key in keys}
    assert {name: entry["samples"] for name, entry in record["metrics"].items()} == samples
    with (place / "images.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    # All ten classes are in the set: among those and among all is the same.
    assert all(row["correct"] == row["correct_all_classes"] for row in rows)
    real = [row for row in rows if row["set"] == "real"]
    assert not any(row["path"].endswith("0.JPEG") for row in real)
    assert sum(int(row["correct"]) for row in real) / 324 == record["metrics"]["test/real/top1"]["value"]
    capsys.readouterr()
    assert main(["report", "run/evaluations"]) == 0
    tables = capsys.readouterr().out.split("toy data: ")
    shifts, own = (next(table for table in tables if table.startswith(name)) for name in ("imagenet_shifts", "robustness"))
    # The paper has rows for A, R and O alone.
    assert "paper" not in shifts
    assert "paper: +DnA" in own


def test_corrupted_pictures_need_their_package_and_say_so(capsys, monkeypatch):
    def found_nothing(name):
        raise PackageNotFoundError(name)

    find_corrupt.cache_clear()
    monkeypatch.setattr("dna_suite.data.corruptions.version", found_nothing)
    words = ["--config=tasks/imagenet_c.yaml", TOY[1], "--run=run"]
    assert "pip install 'dna_suite[corruptions]'" in refusal(capsys, *words)
    assert not Path("run/evaluations/imagenet_c").exists()


def test_sets_and_corruptions_that_there_are_not(capsys):
    assert "did you mean 'data.sets sketch'" in refusal(capsys, *TOY, "--run=run", "--data.sets=[a,sketsh]")
    assert "did you mean 'data.corruptions fog'" in refusal(capsys, *TOY, "--run=run", "--data.corruptions=[fogg]")
    assert "one or more of 1 to 5" in refusal(capsys, *TOY, "--run=run", "--data.severities=[6]")
    words = ["--config=tasks/imagenet_shifts.yaml", TOY[1], "--run=run", "--data.sets=[v2-top]"]
    assert "imagenetv2-top-images-format-val is missing" in refusal(capsys, *words)
    assert "real_labels: none.json: No such file" in refusal(capsys, *words[:-1], "--data.real_labels=none.json")


def test_weights_of_a_file_are_tested_too(capsys):
    words = ["--model.backbone=vit_digits", "--model.size=tiny", "--model.attention.name=dna", "--data.size=32"]
    assert main(["test", *TOY, *words, "--init_from=run"]) == 0
    place = Path("runs/robustness-run/dna/seed0")
    found = json.loads((place / "result.json").read_text())["metrics"]
    assert {name: entry["value"] for name, entry in found.items()} == {name: entry["value"] for name, entry in metrics().items()}
    assert (place / "images.csv").read_bytes() == Path("run/evaluations/robustness/images.csv").read_bytes()


def test_it_is_for_test_only(capsys):
    for command in ("fit", "validate"):
        assert main([command, *TOY, *([] if command == "fit" else ["--run=run"])]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("dna: task robustness trains nothing, it tests a model on other pictures: dna test --config")
    assert main(["plan", "--config=tasks/robustness.yaml"]) == 2
    assert not Path("runs/robustness").exists()


def test_show_tells_the_model_and_the_sets(capsys):
    assert main(["show", "tasks/robustness.yaml", "--model.attention.name=dna"]) == 0
    text = capsys.readouterr().out
    assert "parameters:      100,742,008" in text
    assert "test 49,500 (from the published numbers" in text
    assert "rate at epoch" not in text


def test_wrong_input_is_one_line_before_the_model_is_built(capsys, tmp_path, monkeypatch):
    def build(task):
        raise AssertionError("the model was built")

    monkeypatch.setattr("dna_suite.tasks.classification.ImageClassification.build", build)
    real, run = "--config=tasks/robustness.yaml", "--run=run"
    # A missing root shows the layout, as that of every data set does.
    assert "dna data toy robustness" in refusal(capsys, real, run, f"--data.root={tmp_path / 'none'}")
    # Without the overlay nothing but the published sets will do.
    root = write_toy("robustness", tmp_path / "sets")
    assert "the model has 10 classes, the protocol is for 1,000" in refusal(capsys, real, run, f"--data.root={root}")
    words = [real, run, "--data.subset_ok=true"]
    # Digits stand for ids in the twin that the suite writes itself, not in a folder that somebody names.
    assert "the model's class list has no n01440764" in refusal(capsys, *words, f"--data.root={root}")
    (root / "imagenet-a" / "n01440765").mkdir()
    assert "'n01440765' is no id of ImageNet-1k" in refusal(capsys, *words, f"--data.root={root}")
    shutil.rmtree(root / "imagenet-a")
    assert "imagenet-a is missing" in refusal(capsys, *words, f"--data.root={root}")
    with tarfile.open(root / "imagenet-a.tar", "w"):
        pass
    assert "imagenet-a.tar is an archive" in refusal(capsys, *words, f"--data.root={root}")
    assert "is a file: unpack" in refusal(capsys, *words, f"--data.root={root / 'imagenet-a.tar'}")
    (root / "imagenet-a").mkdir()
    for synset in SYNSETS[:3]:
        shutil.copy(next((root / "imagenet-r").rglob("*.jpg")), root / "imagenet-a" / f"{synset}.jpg")
    assert "3 pictures but no class folders" in refusal(capsys, *words, f"--data.root={root}")
    (root / "imagenet-a" / "0").mkdir()
    assert "its folders are numbers (0)" in refusal(capsys, *words, f"--data.root={root}")
    assert "unknown recipe key" in refusal(capsys, *TOY, run, "--data.rot=x")


def test_a_part_of_the_sets_is_no_result(capsys):
    assert "these sets are tested whole" in refusal(capsys, *TOY, "--run=run", "--trainer.limit_test_batches=2")
