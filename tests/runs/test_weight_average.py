"""The moving average: its numbers, what checkpoints hold of it, and what reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from toy_loop import ToyData, ToyTask, make_trainer

from dna_suite.backbones import load_model
from dna_suite.cli.main import main
from dna_suite.errors import DnaError
from dna_suite.runs.checkpoint_files import newest_checkpoint
from dna_suite.runs.checkpoints import RunCheckpoints
from dna_suite.runs.weight_average import WeightAverage, decay_at

DIGITS = ["--config=tasks/digits.yaml", "--config=configs/smoke.yaml", "--data.toy=false", "--runs=runs"]
RUN = "runs/digits/softmax/seed0"


class Weights(Callback):
    """Keeps the weights after each optimiser step, and those that each validation runs on."""

    def __init__(self) -> None:
        self.trained: list[dict[str, torch.Tensor]] = []
        self.validated: list[dict[str, torch.Tensor]] = []

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if trainer.global_step > len(self.trained):
            self.trained.append({name: value.detach().clone() for name, value in pl_module.named_parameters()})

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > len(self.trained):
            self.trained.append({name: value.detach().clone() for name, value in pl_module.named_parameters()})

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
        self.validated.append({name: value.detach().clone() for name, value in pl_module.named_parameters()})


@pytest.mark.parametrize(("decay", "warmup", "accumulate"), [(0.9, False, 1), (0.9, True, 1), (0.8, False, 3)])
def test_validations_and_checkpoints_hold_the_average_of_every_step(
    decay: float, warmup: bool, accumulate: int, tmp_path: Path
) -> None:
    weights, checkpoints = Weights(), RunCheckpoints(tmp_path)
    options: dict[str, Any] = {"accumulate_grad_batches": accumulate, "num_sanity_val_steps": 0, "limit_val_batches": 1}
    trainer = make_trainer(tmp_path, WeightAverage(decay, warmup), weights, checkpoints, **options)
    trainer.fit(ToyTask(), ToyData())
    steps, per_epoch = len(weights.trained), -(-4 // accumulate)
    assert steps == trainer.global_step == 3 * per_epoch
    expected = {name: value.double() for name, value in weights.trained[0].items()}
    for step in range(1, steps):
        kept = min(decay, (1 + step) / (10 + step)) if warmup else decay
        expected = {name: kept * value + (1 - kept) * weights.trained[step][name].double() for name, value in expected.items()}
        if (step + 1) % per_epoch == 0:
            seen = weights.validated[step // per_epoch]
            # float32 rounding of a dozen updates.
            assert all(torch.allclose(seen[name].double(), value, rtol=1e-5, atol=1e-7) for name, value in expected.items())
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    content = torch.load(newest, weights_only=True)
    assert int(content["averaging_state"]["n_averaged"]) == steps
    for name, value in expected.items():
        assert torch.allclose(content["state_dict"][name].double(), value, rtol=1e-5, atol=1e-7)
        assert torch.equal(content["current_model_state"][name], weights.trained[-1][name])
    # BatchNorm's counter is copied, not averaged: 4 batches in each of 3 epochs.
    assert int(content["state_dict"]["net.1.num_batches_tracked"]) == 12


def test_the_decay_rises_to_its_value() -> None:
    assert [decay_at(step, 0.9999, True) for step in (0, 8, 90)] == [0.1, 0.5, 0.91]
    assert decay_at(10**6, 0.9999, True) == decay_at(0, 0.9999, False) == 0.9999


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run that kept an average."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert main(["fit", *DIGITS, "--model.ema=0.5"]) == 0
    return home


def test_tests_and_loaded_models_have_the_average(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    content = torch.load(Path(RUN) / "checkpoints" / "best.ckpt", weights_only=True)
    average, trained = content["state_dict"], content["current_model_state"]
    assert not torch.equal(average["net.head.weight"], trained["net.head.weight"])
    loaded = load_model(RUN).state_dict()
    assert torch.equal(loaded["head.weight"], average["net.head.weight"])
    record = json.loads((Path(RUN) / "result.json").read_text())
    capfd.readouterr()
    assert main(["validate", f"--run={RUN}"]) == 0
    again = json.loads((Path(RUN) / "result.json").read_text())
    # The validation of the training run was that of the average.
    assert again["metrics"]["val/loss"]["value"] == record["metrics"]["val/loss"]["value"]
    assert "Warning" not in capfd.readouterr().err


def test_a_new_run_starts_from_the_average(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    assert main(["fit", *DIGITS, f"--init_from={RUN}", "--seed=5", "--model.optim.lr=1e-30", "--trainer.max_epochs=1"]) == 0
    average = torch.load(Path(RUN) / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    started = torch.load("runs/digits/softmax/seed5/checkpoints/best.ckpt", weights_only=True)["state_dict"]
    # The warm-up rate of 1e-5 moves a weight by at most 3e-5 in three steps.
    assert all(torch.allclose(started[name], average[name], rtol=0, atol=1e-4) for name in average)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.ema=1"], "model.ema 1.0: from 0 to below 1"),
        (["--model.ema=fast"], "model.ema: a number or null, not fast"),
        (["--model.ema_warmup=true"], "model.ema_warmup true: there is no average to warm up without model.ema"),
    ],
)
def test_wrong_values_are_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *DIGITS, *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_a_resume_with_another_decay_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    assert main(["fit", f"--resume={RUN}", "--model.ema=null"]) == 2
    assert "dna: model.ema: checkpoint 0.5, config None" in capsys.readouterr().err.splitlines()


def test_half_precision_weights_are_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, WeightAverage(0.9), enable_checkpointing=False, precision="bf16-true")
    with pytest.raises(DnaError, match="smaller than half precision can add; bf16-mixed"):
        trainer.fit(ToyTask(), ToyData())
