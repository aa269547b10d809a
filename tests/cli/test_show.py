"""`dna show`: what it says of batch, schedule, drop path, average and groups is what a run does."""

from pathlib import Path

import pytest

from dna_suite.cli.main import main
from dna_suite.cli.show import divide_counts
from dna_suite.errors import DnaError

IMAGENET = {"train": 1_281_167, "val": 50_000, "test": 50_000}


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    """The lines of an answer by the words before their colon."""
    assert main(["show", *words]) == 0
    lines = (line.partition(":") for line in capsys.readouterr().out.splitlines())
    return {head.strip(): tail.strip() for head, _, tail in lines}


def test_the_paper_s_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "tasks/imagenet_vit.yaml")
    assert lines["effective batch"] == "1024 = 256 x 1 process x 4 micro-batches"
    assert lines["schedule"] == "warm-up of 5 epochs from 1e-06, cosine to 1e-05, a rate for each step, no lag"
    assert lines["rate at epoch"] == "0 1e-06, 1 0.0002008, 5 0.001, 150 0.0005182, 299 1.003e-05"
    assert lines["drop path"] == "rising from 0 to 0.15"
    assert lines["weight average"] == "off"
    assert lines["optimiser"] == "adamw, weight decay 0.075 of matrices, layer decay off, clipping None"
    # 12 x (q k v proj fc1 fc2), patches and head; the rest of ViT-B's 86,567,656 numbers do not decay.
    assert lines["decay    decay 0.075"].startswith("74 tensors, 86,292,480 numbers")
    assert lines["no_decay decay 0"].startswith("126 tensors, 275,176 numbers (cls_token, fc1.bias")


def test_the_released_code_s_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    files = ("tasks/imagenet_vit.yaml", "configs/released_code.yaml")
    lines = shown(capsys, *files, "--model.attention.name=dna", "--model.ema=0.9999")
    assert lines["schedule"].endswith("cosine to 1e-05 (begun with the run), a rate for each epoch, 1 epoch late")
    assert lines["rate at epoch"] == "0 1e-06, 1 1e-06, 6 0.0009993, 150 0.0005102, 299 1.011e-05"
    assert lines["drop path"] == "0.15 in every block"
    assert lines["weight average"] == "decay 0.9999"
    assert lines["optimiser"].startswith("adamw, weight decay 0.075 of all parameters")
    assert lines["evaluation"].startswith("resize 256, crop 224, crop_ratio 0.875")
    # The released model, counted with the released code.
    assert lines["decay decay 0.075"].startswith("260 tensors, 100,741,240 numbers")


def test_layer_decay_has_a_line_for_each_group(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "tasks/imagenet_vit.yaml", "configs/fibottention.yaml")
    groups = {head.split(" rate")[0].strip(): (head, tail) for head, tail in lines.items() if head.startswith("layer ")}
    assert len(groups) == 28
    for name, scale, content in (
        ("layer 13 decay", "1.0000", "1 tensor, 768,000 numbers (head.weight)"),
        ("layer 12 decay", "0.7500", "6 tensors, 7,077,888 numbers"),
        ("layer 1 no_decay", "0.0317", "10 tensors, 9,984 numbers"),
        ("layer 0 no_decay", "0.0238", "3 tensors, 152,832 numbers (cls_token, pos_embed, proj.bias)"),
    ):
        head, tail = groups[name]
        assert f"rate x {scale} decay " in head
        assert tail.startswith(content)


def test_devices_of_the_recipe_are_processes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trainer.devices=4", "--trainer.accumulate_grad_batches=1"]
    assert shown(capsys, "tasks/imagenet_vit.yaml", *words)["effective batch"] == "1024 = 256 x 4 processes x 1 micro-batch"


@pytest.mark.parametrize(
    ("holdout", "subset", "train", "val"),
    [
        (None, None, 1_281_167, 50_000),
        (0.1, None, 1_153_050, 128_117),
        (50_000, 100_000, 100_000, 50_000),
        (5, 10**9, 1_281_162, 5),
    ],
)
def test_published_counts_are_divided_as_a_run_does(holdout: float | None, subset: int | None, train: int, val: int) -> None:
    assert divide_counts(IMAGENET, holdout, subset) == {"train": train, "val": val, "test": 50_000}


def test_a_holdout_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(DnaError, match=r"data\.holdout 1281167 of 1281167 training samples leaves none"):
        divide_counts(IMAGENET, 1_281_167, None)
