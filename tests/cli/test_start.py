"""What a run starts from, through the real entry point: the run of another recipe, a file, or nothing."""

import csv
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from dna_suite.cli.argv import split_training
from dna_suite.cli.main import main
from dna_suite.cli.recipe import merge_recipe
from dna_suite.tasks.transfer import Transfer

LARGE = """
task: classification
model: {backbone: vit_digits, size: tiny, attention: {name: softmax}}
data: {name: digits, batch: 8, size: 48, mean: [0.4, 0.4, 0.4]}
trainer: {max_epochs: 1, accelerator: cpu, limit_train_batches: 2, limit_val_batches: 2, limit_test_batches: 2}
"""
SMALL = """
task: transfer
pretrained: large
model: {backbone: vit_digits, size: tiny, attention: {name: softmax}}
data: {name: digits, batch: 8}
trainer: {max_epochs: 1, accelerator: cpu, limit_train_batches: 2, limit_val_batches: 2, limit_test_batches: 2}
"""
SOURCE, RUN = Path("runs/large/softmax/seed0"), Path("runs/small/softmax/seed0")
FIT = ("fit", "--config=small.yaml")


def dna(*words: str) -> None:
    assert main(list(words)) == 0


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The lines of a refusal that writes nothing."""
    before = sorted(Path.cwd().rglob("*"))
    capsys.readouterr()
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sorted(Path.cwd().rglob("*")) == before
    lines = captured.err.splitlines()
    assert all(line.startswith("dna: ") for line in lines)
    return [line.removeprefix("dna: ") for line in lines]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two recipes and a finished run of the first."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "large.yaml").write_text(LARGE)
    (folder / "small.yaml").write_text(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        dna("fit", "--config=large.yaml")
    return folder


@pytest.fixture(autouse=True)
def home(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of that folder for each test."""
    shutil.copytree(trained, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")


def rename_classes(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    from dna_suite.data.digits import Digits

    monkeypatch.setattr(Digits, "classes", property(lambda self: names))


def test_a_run_starts_from_the_other_recipe_s_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rename_classes(monkeypatch, [f"digit {number}" for number in range(10)])
    dna(*FIT, "--model.freeze=backbone")
    lines = [line.removeprefix("dna: ") for line in capsys.readouterr().err.splitlines()]
    assert f"starting from {SOURCE}, the run of large with this attention and seed" in lines
    # Its mean was typed, its deviation is the set's; both come along, and the position table of 6 x 6 patches is made 4 x 4.
    assert "mean [0.4, 0.4, 0.4], std [0.35, 0.35, 0.35] come with the weights" in lines
    assert "initialised: head.weight, head.bias (none in the weights, 10 classes here)" in lines
    assert "resized: pos_embed (6 x 6 -> 4 x 4 patches, bicubic)" in lines
    assert any("of them 490 trainable" in line for line in lines)
    old, new = weights(SOURCE), weights(RUN)
    assert {name for name in old if not torch.equal(old[name], new[name])} == {
        "net.pos_embed",
        "net.head.weight",
        "net.head.bias",
    }
    record = json.loads((RUN / "result.json").read_text())
    assert record["init_from"] == {"path": str(SOURCE), "recipe": "large"}
    assert record["transform"]["mean"] == [0.4, 0.4, 0.4]
    assert (record["parameters"], record["trainable"]) == (67_258, 490)
    report = json.loads((RUN / "init_from.json").read_text())
    assert report["tensors"]["head.weight"]["fate"] == "initialised"
    assert report["tensors"]["pos_embed"]["fate"] == "resized"
    assert len(report["tensors"]) == len(old)


def test_the_run_needs_its_source_no_more(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    step = Transfer.training_step

    def interrupted(self: Transfer, batch: dict[str, Any], batch_idx: int) -> torch.Tensor:
        if self.trainer.global_step == 1:
            signal.raise_signal(signal.SIGTERM)
        return step(self, batch, batch_idx)

    words = (*FIT, "--save_every=1", "--trainer.max_epochs=2")
    dna(*words)
    whole = weights(RUN)
    with monkeypatch.context() as patch:
        patch.setattr(Transfer, "training_step", interrupted)
        assert main([*words, "--overwrite"]) == 143
    shutil.rmtree(SOURCE)
    # Once from the recipe in the run's folder; the same command line with --resume is as good.
    copy = RUN.with_name("seed0copy")
    shutil.copytree(RUN, copy)
    dna("fit", f"--resume={copy}")
    dna(*words, "--resume")
    for run in (copy, RUN):
        resumed = weights(run)
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)
        record = json.loads((run / "result.json").read_text())
        assert record["init_from"] == {"path": str(SOURCE), "recipe": "large"}
    assert not list(RUN.glob("recipe.*.yaml"))
    capsys.readouterr()
    dna("test", f"--run={RUN}")
    assert "normalisation" not in capsys.readouterr().err
    assert len(list(csv.reader((RUN / "per_class.csv").open()))) == 11


def test_a_run_that_stopped_before_its_first_checkpoint_starts_from_its_weights_again(capsys: pytest.CaptureFixture[str]) -> None:
    dna(*FIT, f"--init_from={SOURCE}", "--init_allow=head")
    shutil.rmtree(RUN / "checkpoints")
    capsys.readouterr()
    dna("fit", f"--resume={RUN}")
    lines = capsys.readouterr().err
    assert "nothing to resume yet" in lines
    assert f"{SOURCE}/checkpoints/best.ckpt: tensors" in lines
    assert "init_allow:\n- head\n" in (RUN / "recipe.yaml").read_text()


def test_the_run_s_own_recipe_repeats_its_start(capsys: pytest.CaptureFixture[str]) -> None:
    dna(*FIT, f"--init_from={SOURCE / 'checkpoints/best.ckpt'}")
    first = weights(RUN)
    dna("fit", f"--config={RUN / 'recipe.yaml'}", "--overwrite")
    assert all(torch.equal(first[name], tensor) for name, tensor in weights(RUN).items())
    capsys.readouterr()
    # What is typed comes before what the file says.
    dna("fit", f"--config={RUN / 'recipe.yaml'}", "--overwrite", "--from_scratch")
    assert "tensors" not in capsys.readouterr().err
    assert not (RUN / "init_from.json").exists()
    assert json.loads((RUN / "result.json").read_text())["init_from"] is None


def test_a_configured_mean_wins_and_both_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    # hila-chefer/Transformer-Explainability#73: weights evaluated with another mean and deviation, and nothing says so.
    dna(*FIT, "--data.mean=[0.5, 0.5, 0.5]")
    lines = capsys.readouterr().err
    assert "dna: normalisation is not that of the weights: mean [0.4, 0.4, 0.4] there, [0.5, 0.5, 0.5] here" in lines
    assert "dna: std [0.35, 0.35, 0.35] come with the weights" in lines


def test_an_evaluation_on_other_data_inherits_the_mean(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text(SMALL.replace("transfer", "classification"))
    dna("test", f"--run={SOURCE}", "--config=other.yaml", "--data.size=48")
    record = json.loads((SOURCE / "evaluations" / "other" / "result.json").read_text())
    assert record["transform"]["mean"] == [0.4, 0.4, 0.4]
    assert sorted(path.name for path in (SOURCE / "evaluations" / "other").iterdir()) == [
        "confusion.csv",
        "confusion.png",
        "per_class.csv",
        "result.json",
    ]


def test_from_scratch_needs_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    dna(*FIT, "--seed=1", "--from_scratch", "--model.freeze=backbone")
    assert "no weights to start from: the head is trained on a random network" in capsys.readouterr().err
    assert "pretrained: null" in Path("runs/small/softmax/seed1/recipe.yaml").read_text()


def test_show_says_what_a_run_would_start_from(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> str:
        dna("show", "small.yaml", *words)
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("starts from:")]
        return line.removeprefix("starts from:").strip()

    along = "; mean and std as the weights had, where that is known"
    assert told() == f"{SOURCE} (there), the run of large with this attention and seed{along}"
    assert told("--seed=1", "--data.mean=[0.5, 0.5, 0.5]") == (
        "runs/large/softmax/seed1 (not there yet), the run of large with this attention and seed; std "
        "as the weights had, where that is known"
    )
    assert told("--init_from=vit.pth") == f"vit.pth{along}"
    assert told("--from_scratch") == "fresh weights"


WAYS_ON = "--init_from FILE names other weights, --from_scratch starts without"


@pytest.mark.parametrize("words", [("--seed=1",), ("--model.attention.name=dna",), ("--pretrained=larg",)])
def test_a_missing_source_names_both_ways_on(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = refused(capsys, *FIT, *words)
    assert line.startswith("pretrained lar")
    assert "to start from" in line
    assert line.endswith(WAYS_ON)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--model.backbone=vit_tiny",), f"model.backbone: {SOURCE} 'vit_digits', config 'vit_tiny'"),
        (("--model.size=paper",), f"model.size: {SOURCE} 'tiny', config 'paper'"),
        (("--model.depth=3",), f"model.depth: {SOURCE} its default, config 3"),
    ],
)
def test_a_source_of_another_network_is_refused(words: tuple[str, ...], found: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, last = refused(capsys, *FIT, *words)
    assert first == found
    assert last == f"{SOURCE} is no start for this network: {WAYS_ON}"


def test_a_source_of_another_attention_task_or_toy_data_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = SOURCE / "recipe.yaml"
    text = recipe.read_text()
    recipe.write_text(text.replace("name: softmax", "name: dna\n    options: {alpha: 0.2}"))
    first, _ = refused(capsys, *FIT)
    assert first.startswith(f"model.attention: {SOURCE} {{'name': 'dna'")
    recipe.write_text(text.replace("task: classification", "task: detection"))
    (line,) = refused(capsys, *FIT)
    assert line.startswith(f"{SOURCE} is of task detection; task transfer starts from classification or transfer")
    recipe.write_text(text.replace("batch: 8", "batch: 8\n  toy: true"))
    first, _ = refused(capsys, *FIT)
    assert first == f"data.toy: {SOURCE} was trained on toy data"
    recipe.unlink()
    (line,) = refused(capsys, *FIT)
    assert "no run runs/large/softmax/seed0" in line


def test_a_source_that_has_not_ended_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    (SOURCE / "result.json").unlink()
    (line,) = refused(capsys, *FIT)
    assert line == (
        f"{SOURCE} has not ended its training: dna fit --resume {SOURCE} goes on with it, "
        f"--init_from {SOURCE} starts from it as it is"
    )
    dna(*FIT, f"--init_from={SOURCE}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit", "--from_scratch", "--init_from=x"), "--init_from and --from_scratch each say what a run starts from"),
        (("fit", "--from_scratch", "--pretrained=large"), "--from_scratch and --pretrained each say what a run starts from"),
        (("fit", "--resume", "--init_drop=alpha"), "--resume goes on with a run and --init_drop starts a new one"),
        (("fit", "--from_scratch=yes"), "--from_scratch takes no value"),
        (("fit", "--from_scrach"), "unknown option --from_scrach; did you mean --from_scratch?"),
        (("fit", "--from_scratch", "--init_sign=minus"), "--init_sign is about weights of a file: --init_from FILE is missing"),
        (("fit", "--init_sign=minus"), "--init_sign is about weights of a file: --init_from FILE is missing"),
        (("fit", f"--init_from={SOURCE}", "--init_sign=both"), "--init_sign"),
        (("fit", "--init_from=nowhere"), "nowhere: no such file or run folder"),
        (("fit", "--init_allow=nothing"), "unknown tensor to allow 'nothing' (--init_allow)"),
        (("fit", "--pretrained=[large]"), "pretrained ['large'] (command line): the name of a recipe, such as imagenet_vit"),
        (("fit", "--pretrained=small"), "pretrained small (command line): a recipe does not start from its own run"),
        (("fit", "--pretrained=../large"), "recipe name '../large': a file name without folders"),
        (("fit", "--model.freeze=all"), "model.freeze: one of 'none', 'backbone', not all (command line)"),
        (("fit", "--model.attention.layers=1:"), "model.attention.layers {'1': None} (command line): a text such as \"1:-1\""),
        (("test", "--from_scratch"), "--from_scratch belongs to fit, not to test"),
        (
            ("test", f"--run={SOURCE}", "--pretrained=large"),
            "--run uses a run as it is and --pretrained starts from other weights",
        ),
    ],
)
def test_a_wrong_word_is_one_line(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, *rest = words
    assert message in refused(capsys, command, "--config=small.yaml", *rest)[-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pretrained: 3", "pretrained 3 (extra.yaml:1): the name of a recipe"),
        ("init_from: [a]", "init_from ['a'] (extra.yaml:1): a run folder or a file of weights, or null"),
        ("init_drop: v_neg", "init_drop 'v_neg' (extra.yaml:1): a list of names"),
        ("init_sign: true", "init_sign True (extra.yaml:1): plus or minus, or null"),
    ],
)
def test_a_wrong_value_in_a_file_is_one_line(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("extra.yaml").write_text(text)
    assert message in refused(capsys, *FIT, "--config=extra.yaml")[-1]


def test_a_resume_under_another_start_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    dna(*FIT, "--from_scratch")
    (line,) = refused(capsys, *FIT, "--pretrained=large", "--resume")
    assert line == f"pretrained: {RUN} started from fresh weights, not from large; --resume goes on with it as it was"
    dna(*FIT, "--from_scratch", "--resume")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cars"])
def test_the_paper_s_recipes_are_imagenet_s_but_for_three_numbers(name: str) -> None:
    recipe, source = (
        merge_recipe(split_training("fit", [f"--config=tasks/{file}.yaml"])).values for file in (name, "imagenet_vit")
    )
    assert (recipe["task"], recipe["pretrained"], recipe["data"].pop("name")) == ("transfer", "imagenet_vit", name)
    assert recipe["model"]["optim"].pop("weight_decay") == 0.05
    assert recipe["model"].pop("drop_path") == 0.1
    assert recipe["trainer"].pop("max_epochs") == 100
    for section, key in (("data", "name"), ("model", "drop_path"), ("trainer", "max_epochs")):
        source[section].pop(key)
    source["model"]["optim"].pop("weight_decay")
    assert [recipe[section] for section in ("model", "data", "trainer")] == [source[s] for s in ("model", "data", "trainer")]
