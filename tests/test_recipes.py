"""Every shipped recipe is parsed, built and run small, through the real entry point."""

import json
from pathlib import Path

import pytest

from dna_suite.catalogue import OPERATORS
from dna_suite.cli.main import main
from dna_suite.cli.shipped import shipped_files

# What only tests is run by tests/cli/test_robustness_eval.py.
EVALUATIONS = ("robustness.yaml", "imagenet_shifts.yaml", "imagenet_c.yaml")
RECIPES = [path.name for path in shipped_files("tasks") if path.name not in EVALUATIONS]
OVERLAYS = [path.name for path in shipped_files("configs") if path.name not in ("smoke.yaml", "ddp.yaml", "robustness_toy.yaml")]


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_smoke_run_of_every_recipe_trains_and_tests(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--config=tasks/{recipe}", "--config=configs/smoke.yaml"]
    assert main(["fit", *words, "--model.attention.name=dna"]) == 0
    run = Path("runs/smoke") / Path(recipe).stem / "dna" / "seed0"
    assert main(["test", f"--run={run}"]) == 0
    record = json.loads((run / "result.json").read_text())
    assert record["toy"] is True
    assert record["label"] == "dna"
    assert record["training"]["finished"] is True
    assert any(name.startswith("test/") and entry["samples"] > 0 for name, entry in record["metrics"].items())
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{run}: test/")


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_shown_at_its_real_size_and_writes_nothing(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", f"tasks/{recipe}"]) == 0
    text = capsys.readouterr().out
    for word in ("attention sites:", "parameters:", "multiply-adds:", "effective batch:", "rate at epoch:", "no_decay"):
        assert word in text
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_overlay_fits_a_recipe(overlay: str) -> None:
    words = ["fit", "--config=tasks/imagenet_vit.yaml", f"--config=configs/{overlay}", "--print_config"]
    assert main(words) == 0


def test_show_tells_the_paper_s_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["show", "tasks/imagenet_vit.yaml", "--model.attention.name=dna", "--processes=8", "--images_per_second=900"]
    assert main([*words, "--trainer.accumulate_grad_batches=1", "--data.batch=128"]) == 0
    text = capsys.readouterr().out
    assert "parameters:      100,742,008" in text
    assert "multiply-adds:   21,086,755,584" in text
    assert "effective batch: 1024 = 128 x 8 processes x 1 micro-batch" in text
    assert "1,252 an epoch, 375,600 in 300 epochs" in text
    # 300 x 1,281,167 pictures / 7,200 a second.
    assert "duration:        0.62 days, 118.6 GPU hours" in text
    assert "12 x blocks.*.attn" in text


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_trains(name: str) -> None:
    words = [
        "--config=tasks/digits.yaml",
        "--config=configs/smoke.yaml",
        f"--model.attention.name={name}",
        "--trainer.max_epochs=1",
    ]
    assert main(["fit", *words, "--trainer.limit_train_batches=1"]) == 0
