"""`dna plan`: the commands, what is left out, and that a shell and `dna fit` read them as they were meant."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from dna_suite.cli.argv import split_training
from dna_suite.cli.main import main
from dna_suite.cli.plan import planned_folder
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
    assert planned_folder(fit[2:]).path == Path("my runs/$HOME/digits/dna/seed7")


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
    words = ["--config=tasks/digits.yaml", "--model.attention.name=dna"]
    changed = planned_folder([*words, "--model.attention.layers=0,1"]).path
    assert changed.parent.name.startswith("dna-")
    assert planned_folder(words).path.parent.name == "dna"


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
