"""`dna plan`: the commands, what is left out, and that a shell and `dna fit` read them as they were meant."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from dna_suite.cli.argv import split_training
from dna_suite.cli.main import main
from dna_suite.cli.plan import plan_cell
from dna_suite.cli.recipe import merge_recipe
from dna_suite.runs.folder import RunFolder

GRID = ["--config", "tasks/digits.yaml", "--attention", "softmax", "dna", "--seeds", "0", "1"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["plan", *words]) == 0
    return capsys.readouterr().out.splitlines()


def record(folder: Path, *, finished: bool, metrics: tuple[str, ...] = ("val/top1",)) -> None:
    run = RunFolder(folder)
    run.create({"task": "classification"}, ["dna", "fit"], {})
    required = {"attention": {}, "backbone": {}, "data": {}, "versions": {}, "hardware": {}}
    optional = dict.fromkeys(("multiply_adds", "best", "transform", "commit"))
    values = {"recipe": "digits", "task": "classification", "label": "x", "seed": 0, "toy": False, "parameters": 1}
    entries = {name: {"value": 0.9, "samples": 10} for name in metrics}
    training = {"epochs": 1, "steps": 1, "seconds": 1.0, "finished": finished}
    run.result.write_text(json.dumps({"version": 1, **values, **required, **optional, "metrics": entries, "training": training}))


def test_one_command_for_each_cell(capsys: pytest.CaptureFixture[str]) -> None:
    first, *commands = planned(capsys, *GRID)
    assert first == "# 4 runs: 4 to do, 0 finished and left out"
    assert commands == [
        f"dna fit --config=tasks/digits.yaml --model.attention.name={name} --seed={seed}"
        for name in ("softmax", "dna")
        for seed in (0, 1)
    ]


def test_without_attention_and_seeds_the_recipe_decides(capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(capsys, "--config", "tasks/digits.yaml")[1:] == ["dna fit --config=tasks/digits.yaml"]


def test_commands_survive_a_shell_and_mean_the_same_to_fit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--runs", "my runs/$HOME", "--data.root", "it's here", "--trainer.max_epochs=5"]
    (_, command) = planned(capsys, "--config", "tasks/digits.yaml", "--attention", "dna", "--seeds", "7", *words)
    fit = shlex.split(command)
    assert fit[:2] == ["dna", "fit"]
    recipe = merge_recipe(split_training("fit", fit[2:]))
    assert recipe.values["runs"] == "my runs/$HOME"
    assert recipe.get("data.root") == "it's here"
    assert recipe.get("trainer.max_epochs") == 5
    assert (recipe.get("model.attention.name"), recipe.values["seed"]) == ("dna", 7)
    assert plan_cell("tasks/digits.yaml", fit[3:]).folder.path == Path("my runs/$HOME/digits/dna/seed7")


def test_a_fragment_goes_on_top_of_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    lines = planned(
        capsys, "--config", "tasks/digits.yaml", "--config", "tasks/imagenet_vit.yaml", "--config", "configs/smoke.yaml"
    )
    assert lines[1:] == [
        "dna fit --config=tasks/digits.yaml --config=configs/smoke.yaml",
        "dna fit --config=tasks/imagenet_vit.yaml --config=configs/smoke.yaml",
    ]


def test_finished_runs_are_left_out_and_started_ones_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    record(Path("runs/digits/softmax/seed0"), finished=True)
    record(Path("runs/digits/softmax/seed1"), finished=False)
    RunFolder(Path("runs/digits/dna/seed0")).create({"task": "classification"}, ["dna"], {})
    lines = planned(capsys, *GRID)
    fit = "dna fit --config=tasks/digits.yaml --model.attention.name"
    assert lines == [
        "# 4 runs: 3 to do, 1 finished and left out, 2 started: --resume goes on with them",
        f"{fit}=softmax --seed=1 --resume",
        f"{fit}=dna --seed=0 --resume",
        f"{fit}=dna --seed=1",
    ]


def test_test_follows_training_and_a_tested_run_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    record(Path("runs/digits/softmax/seed0"), finished=True, metrics=("val/top1", "test/top1"))
    record(Path("runs/digits/softmax/seed1"), finished=True)
    lines = planned(capsys, *GRID, "--test")
    assert lines[0] == "# 4 runs: 3 to do, 1 finished and left out"
    assert lines[1] == "dna test --run=runs/digits/softmax/seed1"
    assert lines[2] == (
        "dna fit --config=tasks/digits.yaml --model.attention.name=dna --seed=0 && dna test --run=runs/digits/dna/seed0"
    )


def test_options_of_the_attention_lead_to_their_own_folder() -> None:
    words = ["--model.attention.name=dna"]
    changed = plan_cell("tasks/digits.yaml", [*words, "--model.attention.layers=0,1"]).folder.path
    assert changed.parent.name.startswith("dna-")
    assert plan_cell("tasks/digits.yaml", words).folder.path.parent.name == "dna"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "tasks/digits.yaml", "--attention", "softmx"], "did you mean 'softmax'?"),
        (["--config", "tasks/digits.yaml", "--attention", "dna+fib"], "unknown pattern 'fib'"),
        (["--config", "tasks/digits.yaml", "--trainer.max_epoch=3"], "did you mean 'trainer.max_epochs'?"),
        (["--config", "tasks/digits.yaml", "--seed", "3"], "did you mean --seeds?"),
        (["--config", "tasks/digits.yaml", "--seeds", "x"], "--seeds"),
        (["--config", "tasks/digit.yaml"], "did you mean tasks/digits.yaml?"),
        (["--config", "configs/smoke.yaml"], "no file says which task"),
        ([], "--config"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def write_recipes(folder: Path) -> None:
    """A recipe `second` that starts from `first`, and `third` that starts from `second`."""
    text = "task: classification\nmodel: {backbone: vit_digits}\ndata: {name: digits}\n"
    (folder / "first.yaml").write_text(text)
    (folder / "second.yaml").write_text(f"{text}pretrained: first\n")
    (folder / "third.yaml").write_text(f"{text}pretrained: second\n")


def test_what_others_start_from_comes_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_recipes(tmp_path)
    words = ["--attention", "dna", "--seeds", "1", "--test", "--data.batch=8", "--model.heads", "2", "--runs", "mine"]
    lines = planned(capsys, "--config", "third.yaml", *words)
    # The network's shape goes along, the batch does not; only what was asked for is tested.
    shared = "--runs=mine --model.heads=2 --model.attention.name=dna --seed=1"
    assert lines[0] == "# 3 runs: 3 to do, 0 finished and left out; 2 that others start from come first"
    assert sorted(shlex.split(lines[1])) == sorted(shlex.split(f"dna fit --config=first.yaml {shared}"))
    assert sorted(shlex.split(lines[2])) == sorted(shlex.split(f"dna fit --config=second.yaml {shared}"))
    assert lines[3].startswith("dna fit --config=third.yaml --runs=mine --data.batch=8 --model.heads")
    assert lines[3].endswith("&& dna test --run=mine/third/dna/seed1")


def test_the_order_of_the_command_line_gives_way_to_what_starts_from_what(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_recipes(tmp_path)
    lines = planned(capsys, "--config", "second.yaml", "--config", "first.yaml", "--seeds", "0", "1")
    assert lines == [
        "# 4 runs: 4 to do, 0 finished and left out",
        "dna fit --config=first.yaml --seed=0",
        "dna fit --config=second.yaml --seed=0",
        "dna fit --config=first.yaml --seed=1",
        "dna fit --config=second.yaml --seed=1",
    ]


def test_a_source_that_has_ended_is_not_named_and_one_that_stopped_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_recipes(tmp_path)
    record(Path("runs/first/softmax/seed0"), finished=True)
    record(Path("runs/first/softmax/seed1"), finished=False)
    lines = planned(capsys, "--config", "second.yaml", "--seeds", "0", "1")
    assert lines == [
        "# 3 runs: 3 to do, 0 finished and left out, 1 started: --resume goes on with them; 1 that others start from comes first",
        "dna fit --config=second.yaml --seed=0",
        "dna fit --config=first.yaml --seed=1 --resume",
        "dna fit --config=second.yaml --seed=1",
    ]


def test_an_overlay_may_say_what_a_recipe_starts_from(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_recipes(tmp_path)
    (tmp_path / "overlay.yaml").write_text("pretrained: first\n")
    lines = planned(capsys, "--config", "third.yaml", "--config", "overlay.yaml")
    assert lines[1:] == [
        "dna fit --config=first.yaml --config=overlay.yaml --from_scratch",
        "dna fit --config=third.yaml --config=overlay.yaml",
    ]


def test_a_source_without_a_recipe_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_recipes(tmp_path)
    (tmp_path / "first.yaml").unlink()
    lines = planned(capsys, "--config", "second.yaml")
    assert lines[1:] == [
        "# first of all runs/first/softmax/seed0, for which there is no recipe here",
        "dna fit --config=second.yaml",
    ]


def test_the_shipped_recipes_of_the_paper_s_transfer_bring_their_source(capsys: pytest.CaptureFixture[str]) -> None:
    lines = planned(capsys, "--config", "tasks/cifar10.yaml", "--config", "tasks/cars.yaml")
    names = ["imagenet_vit", "cifar10", "cars"]
    assert lines[1:] == [f"dna fit --config=tasks/{name}.yaml" for name in names]
