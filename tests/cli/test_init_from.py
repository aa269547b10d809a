"""`dna fit --init_from` with files of every kind: what is told and stored about each tensor, what is refused."""

import argparse
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from dna_suite.backbones import load_model
from dna_suite.cli.main import main

TINY = ["--config=tasks/digits.yaml", "--config=configs/smoke.yaml", "--runs=runs", "--trainer.limit_train_batches=1"]
SHORT = [*TINY, "--trainer.max_epochs=1"]
RUN = Path("runs/digits/softmax/seed0")
NEGATIVE = {f"{stream}.{kind}" for stream in ("q_neg", "v_neg") for kind in ("weight", "bias")}


def dna(*words: str) -> None:
    assert main(list(words)) == 0


def report(run: str) -> dict:
    return json.loads((Path(run) / "init_from.json").read_text())


def fates(run: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, entry in report(run)["tensors"].items():
        found.setdefault(entry["fate"], set()).add(name)
    return found


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    before = sorted(Path.cwd().rglob("*"))
    capsys.readouterr()
    assert main(list(words)) == 2
    assert sorted(Path.cwd().rglob("*")) == before
    return capsys.readouterr().err.splitlines()[-1]


def timm_vit(classes: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    model = VisionTransformer(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=3, num_classes=classes)
    return model.state_dict()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short softmax run."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        dna("fit", *SHORT)
    return folder


@pytest.fixture(autouse=True)
def home(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_head_of_other_classes_is_all_that_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    # huggingface/pytorch-image-models#433, #948
    torch.save(timm_vit(1000), "vit.pth")
    dna("fit", *SHORT, "--seed=1", "--init_from=vit.pth")
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("dna: initialised")] == [
        "dna: initialised: head.weight, head.bias (1000 classes in the weights, 10 classes here)"
    ]
    run = "runs/digits/softmax/seed1"
    assert fates(run).keys() == {"loaded", "initialised"}
    assert fates(run)["initialised"] == {"head.weight", "head.bias"}
    assert report(run)["source"] == "vit.pth"
    assert fates(run)["loaded"] | fates(run)["initialised"] == set(load_model(run).state_dict())


def test_a_renamed_block_is_refused_until_both_names_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    # OpenGVLab/InternImage#297: a load that is not strict would lose more than the head.
    state = timm_vit(10)
    state["blocks.1.norm_1.weight"] = state.pop("blocks.1.norm1.weight")
    torch.save({"model": state}, "vit.pth")
    words = ("fit", *SHORT, "--seed=1", "--init_from=vit.pth")
    told = "missing: blocks.1.norm1.weight; unexpected: blocks.1.norm_1.weight; to accept that: "
    flags = "--init_allow blocks.*.norm1.weight --init_allow blocks.*.norm_1.weight"
    assert refused(capsys, *words) == f"dna: vit.pth: these weights do not fit the model; {told}{flags}"
    assert "missing" in refused(capsys, *words, "--init_allow=blocks.1.norm_1.weight")
    assert "unknown tensor to allow 'nrm1' (--init_allow)" in refused(capsys, *words, "--init_allow=nrm1")
    dna(*words, *flags.split())
    assert fates("runs/digits/softmax/seed1")["initialised"] == {"blocks.1.norm1.weight"}
    assert fates("runs/digits/softmax/seed1")["unused"] == {"blocks.1.norm_1.weight"}


def test_softmax_weights_in_dna_lack_exactly_the_negative_branch() -> None:
    dna("fit", *SHORT, "--model.attention.name=dna", f"--init_from={RUN}")
    added = {f"blocks.{block}.attn.{name}" for block in range(2) for name in (*NEGATIVE, "operator.alpha")}
    assert fates("runs/digits/dna/seed0")["initialised"] == added
    assert report("runs/digits/dna/seed0")["attention"] == {"weights": "softmax", "model": "dna"}


def test_other_options_of_one_attention_are_told_as_options(capsys: pytest.CaptureFixture[str]) -> None:
    dna("fit", *SHORT, "--model.attention.name=differential")
    words = ("fit", *SHORT, "--model.attention.name=differential", "--model.attention.options.plain=true")
    told = "attention differential (plain=false) -> differential (plain=true) loses lambda"
    assert told in refused(capsys, *words, "--init_from=runs/digits/differential/seed0")


def values(run: str) -> dict[str, float]:
    metrics = json.loads((Path(run) / "result.json").read_text())["metrics"]
    return {name: entry["value"] for name, entry in metrics.items() if name.startswith("val/")}


def test_compiled_and_plain_runs_read_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # Lightning-AI/pytorch-lightning#20233, pytorch/pytorch#101107: a compiled model's keys must have no prefix.
    compile_module = nn.Module.compile
    # The backend that compiles nothing: keys and calls are those of the real one, without a compiler.
    monkeypatch.setattr(nn.Module, "compile", lambda module: compile_module(module, backend="eager"))
    run = "runs/digits/softmax/seed1"
    dna("fit", *SHORT, "--seed=1", "--model.compile=true", "--model.ema=0.5", f"--init_from={RUN}")
    assert fates(run).keys() == {"loaded"}
    content = torch.load(f"{run}/checkpoints/best.ckpt", weights_only=True)
    plain = torch.load(RUN / "checkpoints" / "best.ckpt", weights_only=True)
    assert content["state_dict"].keys() == plain["state_dict"].keys()
    compiled = values(run)
    dna("validate", f"--run={run}", "--model.compile=false")
    # float32 of the same kernels called through another frame.
    assert values(run) == pytest.approx(compiled, abs=1e-6)
    dna("fit", *SHORT, "--seed=2", f"--init_from={run}")
    assert fates("runs/digits/softmax/seed2").keys() == {"loaded"}


def test_a_run_with_an_average_gives_the_average() -> None:
    dna("fit", *TINY, "--seed=1", "--model.ema=0.5")
    file = "runs/digits/softmax/seed1/checkpoints/step00000002.ckpt"
    content = torch.load(file, weights_only=True)
    average, raw = content["state_dict"], content["current_model_state"]
    assert not torch.equal(average["net.head.weight"], raw["net.head.weight"])
    # A rate that changes no float32.
    still = [f"--model.{key}=1e-30" for key in ("optim.lr", "schedule.warmup_lr", "schedule.min_lr")]
    dna("fit", *SHORT, "--seed=2", f"--init_from={file}", *still)
    state = load_model("runs/digits/softmax/seed2").state_dict()
    assert all(torch.equal(tensor, average[f"net.{name}"]) for name, tensor in state.items())


class Hostile:
    def __reduce__(self):
        return os.system, ("touch marker",)


@pytest.mark.parametrize("name", ["w.pth", "w.ckpt", "w.bin", "w.pt", "w.safetensors"])
def test_a_file_that_would_run_code_is_refused_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"model": timm_vit(10), "args": argparse.Namespace(hook=Hostile())}, name)
    assert name in refused(capsys, "fit", *SHORT, "--seed=1", f"--init_from={name}")
    assert not Path("marker").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--init_from=nowhere"], "nowhere: no such file or run folder"),
        (["--init_from=timm/vit_bse_patch16_224"], "timm has no weights of that name; did you mean timm/vit_base_patch16_224?"),
        (["--init_from=runs"], "runs: no run folder"),
        ([f"--init_from={RUN}", "--init_sign=minus"], "has no neg_scalers, so it is no released DnA file"),
        ([f"--init_from={RUN}", "--init_sign=neg"], "unknown sign 'neg' (--init_sign)"),
        ([f"--init_from={RUN}", "--init_drop=vneg"], "unknown stream to drop 'vneg' (--init_drop)"),
        ([f"--init_from={RUN}", "--model.dim=24"], "of another shape: cls_token [1, 1, 48] for [1, 1, 24]"),
    ],
)
def test_wrong_weights_are_one_line_and_leave_nothing(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in refused(capsys, "fit", *SHORT, "--seed=1", *words)
