"""fit, validate, test, predict through the real entry point on the real digits, with a tiny model."""

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from dna_suite.backbones import load_model
from dna_suite.cli.main import main
from dna_suite.tasks.classification import ImageClassification

TINY = ["--config=tasks/digits.yaml", "--config=configs/smoke.yaml", "--runs=runs", "--data.toy=false"]


def dna(*words: str) -> None:
    assert main(list(words)) == 0


def result(run: str) -> dict:
    return json.loads((Path(run) / "result.json").read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished softmax run, seed 3."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        dna("fit", *TINY, "--seed=3")
        dna("test", "--run=runs/digits/softmax/seed3")
    return home


@pytest.fixture(autouse=True)
def inside(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


RUN = "runs/digits/softmax/seed3"


def test_a_run_folder_holds_what_the_design_says() -> None:
    run = Path(RUN)
    files = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    assert files == [
        "checkpoints/best.ckpt",
        "checkpoints/step00000003.ckpt",
        "checkpoints/step00000006.ckpt",
        "command.txt",
        "confusion.csv",
        "confusion.png",
        "env.json",
        "metrics.csv",
        "per_class.csv",
        "recipe.yaml",
        "result.json",
    ]
    assert "dna fit --config=tasks/digits.yaml" in (run / "command.txt").read_text()
    rows = (run / "metrics.csv").read_text().splitlines()
    assert {"step", "train/loss", "train/lr", "val/top1", "epoch"} <= set(rows[0].split(","))
    assert [row.split(",")[0] for row in rows[1:]] == ["1", "2", "3", "4", "5", "6"]


def test_the_result_counts_every_sample_of_the_limited_run() -> None:
    record = result(RUN)
    assert record["seed"] == 3
    assert record["attention"] == {"name": "softmax", "pattern": None, "layers": "all", "options": {}}
    assert record["data"]["counts"] == {"train": 1257, "val": 180, "test": 360}
    # Two batches of eight in each evaluation.
    assert {name: entry["samples"] for name, entry in record["metrics"].items()} == dict.fromkeys(
        ["val/top1", "val/top5", "val/loss", "test/top1", "test/top5", "test/loss", "test/mean_class_accuracy"], 16
    )
    assert record["metrics"]["test/top1"]["value"] * 16 % 1 == 0
    assert record["training"]["epochs"] == 2
    assert record["training"]["steps"] == 6
    assert record["training"]["finished"] is True
    assert (record["training"]["selected_on"], record["training"]["selected_on_test"]) == ("package, val", False)
    assert record["init_from"] is None
    assert record["parameters"] == sum(parameter.numel() for parameter in load_model(RUN).parameters())


def test_the_files_per_class_agree_with_the_scores() -> None:
    metrics = result(RUN)["metrics"]
    per_class = list(csv.DictReader((Path(RUN) / "per_class.csv").open()))
    samples, correct = (sum(int(row[key]) for row in per_class) for key in ("samples", "correct"))
    assert samples == 16
    assert correct / 16 == metrics["test/top1"]["value"]
    seen = [float(row["accuracy"]) for row in per_class if row["accuracy"] != "n/a"]
    # Sixteen pictures of ten digits: the classes without one count for nothing. Files hold six decimals.
    assert 0 < sum(row["accuracy"] == "n/a" for row in per_class) == 10 - len(seen)
    assert sum(seen) / len(seen) == pytest.approx(metrics["test/mean_class_accuracy"]["value"], abs=1e-6)
    matrix = [[int(cell) for cell in row[1:]] for row in csv.reader((Path(RUN) / "confusion.csv").open()) if row[0].isdigit()]
    assert [sum(row) for row in matrix] == [int(row["samples"]) for row in per_class]
    assert [matrix[digit][digit] for digit in range(10)] == [int(row["correct"]) for row in per_class]


def test_testing_again_gives_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    before = result(RUN)["metrics"]
    dna("test", f"--run={RUN}")
    assert result(RUN)["metrics"] == before
    assert f"{RUN}: test/top1 {before['test/top1']['value']:.4f}" in capsys.readouterr().out


def test_a_second_fit_stops_and_names_both_ways_on(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in Path(RUN).rglob("*") if path.is_file()}
    assert main(["fit", *TINY, "--seed=3"]) == 2
    assert "exists: --resume goes on with it, --overwrite starts it anew" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path(RUN).rglob("*") if path.is_file()} == before


def test_overwriting_gives_the_same_weights_again() -> None:
    before = torch.load(Path(RUN) / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    dna("fit", *TINY, "--seed=3", "--overwrite")
    assert not list(Path(RUN).glob("per_class.csv")) + list(Path(RUN).glob("confusion.*"))
    dna("test", f"--run={RUN}")
    after = torch.load(Path(RUN) / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(before[name], after[name]) for name in before | after)


def test_resuming_a_finished_run_changes_nothing() -> None:
    before = result(RUN)["metrics"]["val/top1"]
    dna("fit", f"--resume={RUN}")
    assert result(RUN)["metrics"]["val/top1"] == before


def test_a_resume_under_another_configuration_is_refused_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model.optim.lr=1e-4", "--trainer.max_epochs=5", "--seed=4", "--model.attention.name=dna"]
    assert main(["fit", f"--resume={RUN}", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "dna: model.optim.lr: checkpoint 0.004, config 0.0001" in lines
    assert "dna: trainer.max_epochs: checkpoint 2, config 5" in lines
    assert "dna: seed: checkpoint 3, config 4" in lines
    assert "dna: model.attention.name: checkpoint 'softmax', config 'dna'" in lines


def test_a_resume_with_nothing_to_resume_is_a_normal_start(capsys: pytest.CaptureFixture[str]) -> None:
    dna("fit", *TINY, "--seed=8", "--resume")
    assert "nothing to resume yet" in capsys.readouterr().err
    assert result("runs/digits/softmax/seed8")["training"]["finished"] is True


def test_a_run_keeps_its_model_whatever_the_files_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", f"--run={RUN}", "--model.attention.name=dna"]) == 2
    assert "model.attention.name: runs/digits/softmax/seed3 'softmax', config 'dna'" in capsys.readouterr().err
    Path("other.yaml").write_text("model: {attention: {name: dna}, size: paper}\n")
    dna("test", f"--run={RUN}", *TINY, "--config=other.yaml")
    notes = capsys.readouterr().err
    assert "model from the run: model.attention.name: runs/digits/softmax/seed3 'softmax', config 'dna'" in notes
    assert "model from the run: model.size: runs/digits/softmax/seed3 'tiny', config 'paper'" in notes


def test_a_new_run_starts_from_a_softmax_run_under_another_attention(capsys: pytest.CaptureFixture[str]) -> None:
    dna("fit", *TINY, "--model.attention.name=dna", f"--init_from={RUN}")
    assert "warm start" in capsys.readouterr().err
    assert result("runs/digits/dna/seed0")["label"] == "dna"


def test_losing_a_branch_is_refused_until_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("runs/digits/dna/seed0").exists():
        dna("fit", *TINY, "--model.attention.name=dna")
    words = ["fit", *TINY, "--model.attention.name=dna-q", "--init_from=runs/digits/dna/seed0"]
    assert main(words) == 2
    assert "--init_drop v_neg" in capsys.readouterr().err
    assert not Path("runs/digits/dna-q").exists()
    dna(*words, "--init_drop=v_neg")


def test_a_run_loads_in_three_lines() -> None:
    model = load_model(RUN)
    assert not model.training
    assert model.classes == [str(digit) for digit in range(10)]
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_predictions_are_streamed_as_json_lines(tmp_path: Path) -> None:
    from PIL import Image

    from dna_suite.data.digits import read_digits

    ink, _ = read_digits()
    for number in range(10):
        Image.fromarray((ink[number] * 15).astype("uint8")).resize((32, 32)).save(tmp_path / f"{number}.png")
    dna("predict", f"--run={RUN}", f"--input={tmp_path}", f"--out={tmp_path / 'out'}", "--topk=3")
    lines = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [Path(line["path"]).name for line in lines] == [f"{number}.png" for number in range(10)]
    assert all(len(line["classes"]) == len(line["probabilities"]) == 3 for line in lines)
    assert all(line["probabilities"] == sorted(line["probabilities"], reverse=True) for line in lines)
    dna("predict", f"--run={RUN}", f"--input={tmp_path / '3.png'}", f"--out={tmp_path / 'one'}")
    only = json.loads((tmp_path / "one" / "predictions.jsonl").read_text())
    # The same picture in another batch: equal to the rounding of float32 sums in another order.
    assert only["classes"][:3] == lines[3]["classes"]
    assert only["probabilities"][:3] == pytest.approx(lines[3]["probabilities"], abs=2e-6)


def test_a_subset_is_one_flag() -> None:
    dna("fit", *TINY, "--data.subset=40", "--seed=9")
    assert result("runs/digits/softmax/seed9")["data"] == {
        "name": "digits",
        "root": None,
        "counts": {"train": 40, "val": 180, "test": 360},
        "subset": 40,
        "val_from": "package, val",
        "test_from": "package, test",
        "skipped": 0,
    }


def test_a_logger_by_short_name_writes_into_the_run_folder() -> None:
    dna("fit", *TINY, "--seed=10", "--logger=tensorboard")
    assert list(Path("runs/digits/softmax/seed10/tensorboard").glob("events.out.tfevents.*"))
    assert (Path("runs/digits/softmax/seed10") / "metrics.csv").is_file()


def test_wrong_data_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", "--config=tasks/imagenet_vit.yaml", "--config=configs/smoke.yaml", "--data.toy=false", "--data.root=nowhere"]
    assert main([*words, "--runs=elsewhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert not Path("elsewhere").exists()


def test_classes_that_differ_from_the_run_s_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dna_suite.data.digits import Digits

    monkeypatch.setattr(Digits, "classes", property(lambda self: [f"digit {number}" for number in range(10)]))
    assert main(["test", f"--run={RUN}"]) == 2
    assert "the first that differs: '0' there, 'digit 0' here" in capsys.readouterr().err


def test_a_loss_that_is_not_a_number_ends_with_step_rate_and_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *TINY, "--seed=11", "--model.optim.lr=1e30", "--trainer.gradient_clip_val=null"]) == 2
    message = capsys.readouterr().err
    assert "training loss is" in message
    assert "step" in message
    assert "last good checkpoint" in message


def weights(run: str, name: str = "step00000006.ckpt") -> dict[str, torch.Tensor]:
    return torch.load(Path(run) / "checkpoints" / name, weights_only=True)["state_dict"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_at_a_border_and_the_run_goes_on_bit_for_bit(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = 20 + number
    step = ImageClassification.training_step

    def interrupted(self: ImageClassification, batch: dict[str, Any], batch_idx: int) -> torch.Tensor:
        if self.trainer.global_step == 4:
            os.kill(os.getpid(), number)
        return step(self, batch, batch_idx)

    words = [*TINY, "--model.mixup=0.8", "--model.drop_path=0.3", "--data.erase=0.5"]
    with monkeypatch.context() as patch:
        patch.setattr(ImageClassification, "training_step", interrupted)
        assert main(["fit", *words, f"--seed={seed}"]) == code
    assert f"go on with dna fit --resume runs/digits/softmax/seed{seed}" in capsys.readouterr().err
    run = f"runs/digits/softmax/seed{seed}"
    assert not (Path(run) / "result.json").exists()
    assert (Path(run) / "checkpoints" / "step00000005.ckpt").is_file()
    dna("fit", f"--resume={run}")
    stopped = weights(run)
    dna("fit", *words, f"--seed={seed}", "--overwrite")
    whole = weights(run)
    assert stopped.keys() == whole.keys()
    assert all(torch.equal(stopped[name], whole[name]) for name in whole)


def test_a_checkpoint_carries_what_it_is_and_nothing_but_plain_values() -> None:
    content = torch.load(Path(RUN) / "checkpoints" / "best.ckpt", weights_only=True)
    described = content["dna"]
    assert described["task"] == "classification"
    assert described["attention"]["name"] == "softmax"
    assert described["backbone"]["dim"] == 48
    assert described["classes"] == [str(digit) for digit in range(10)]
    assert described["transform"]["mean"] == pytest.approx([0.308] * 3)
    assert described["position"] == {"seed": 3, "global_batch": 8, "accumulate": 1, "world": 1, "length": 1257}
    assert described["optimisation"]["model.optim.lr"] == 0.004
    assert "hyper_parameters" not in content
    assert all(name.startswith("net.") for name in content["state_dict"])


def test_another_class_list_gets_a_new_head(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from dna_suite.data.digits import Digits

    monkeypatch.setattr(Digits, "classes", property(lambda self: [f"digit {number}" for number in range(10)]))
    dna("fit", *TINY, "--seed=12", f"--init_from={RUN}", "--trainer.limit_train_batches=1")
    assert "head.weight" in capsys.readouterr().err


def test_a_checkpoint_that_is_another_network_than_its_recipe_says_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    dna("fit", *TINY, "--seed=13", "--trainer.max_epochs=1")
    run = Path("runs/digits/softmax/seed13")
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(recipe.replace("size: tiny", "size: tiny\n  heads: 6"))
    assert main(["test", f"--run={run}"]) == 2
    assert f"dna: backbone.heads: {run}/checkpoints/best.ckpt 3, config 6" in capsys.readouterr().err.splitlines()


def test_weights_of_timm_are_evaluated_and_refused_where_a_head_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from timm.models.vision_transformer import VisionTransformer

    for classes in (10, 7):
        model = VisionTransformer(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=3, num_classes=classes)
        torch.save(model.state_dict(), tmp_path / f"timm{classes}.pth")
    dna("test", *TINY, f"--init_from={tmp_path / 'timm10.pth'}")
    record = result("runs/digits-timm10/softmax/seed0")
    assert record["metrics"]["test/top1"]["samples"] == 16
    assert record["training"] is None
    assert main(["test", *TINY, f"--init_from={tmp_path / 'timm7.pth'}"]) == 2
    assert "has no weights for head.weight, head.bias: nothing to evaluate" in capsys.readouterr().err
    assert not Path("runs/digits-timm7").exists()


def test_a_run_that_was_never_validated_is_tested_by_its_newest_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    dna("fit", *TINY, "--seed=14", "--trainer.limit_val_batches=0")
    run = "runs/digits/softmax/seed14"
    assert f"{run} (no validation was run)" in capsys.readouterr().out
    dna("test", f"--run={run}")
    assert f"using {run}/checkpoints/step00000006.ckpt" in capsys.readouterr().err
    assert result(run)["best"] is None
