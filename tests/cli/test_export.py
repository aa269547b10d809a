"""`dna export` through the real entry point: each format of a real run, and every wrong way to ask for one."""

import shutil
from pathlib import Path

import onnxruntime
import pytest
import torch

from dna_suite.backbones import load_model
from dna_suite.cli.export import FORMATS
from dna_suite.cli.main import main

TINY = ["--config=tasks/digits.yaml", "--config=configs/smoke.yaml", "--runs=runs"]
DNA, SOFTMAX = "runs/digits/dna/seed0", "runs/digits/softmax/seed0"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of dna that keeps an average, and a softmax run."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", *TINY, "--model.attention.name=dna", "--model.ema=0.5"]) == 0
        assert main(["fit", *TINY, "--trainer.max_epochs=1"]) == 0
    return folder


@pytest.fixture(autouse=True)
def home(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state(path: str) -> dict[str, torch.Tensor]:
    return load_model(path).state_dict()


def test_safetensors_hold_the_average_and_are_read_like_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", DNA, "--format=safetensors", "--checkpoint=last"]) == 0
    assert capsys.readouterr().out.startswith(
        f"{DNA}/export/safetensors: model.safetensors from {DNA}/checkpoints/step00000006.ckpt; "
    )
    content = torch.load(f"{DNA}/checkpoints/step00000006.ckpt", weights_only=True)
    average, raw = content["state_dict"], content["current_model_state"]
    exported = state(f"{DNA}/export/safetensors")
    assert all(torch.equal(tensor, average[f"net.{name}"]) for name, tensor in exported.items())
    assert not torch.equal(exported["head.weight"], raw["net.head.weight"])
    assert main(["test", *TINY, "--model.attention.name=dna", f"--init_from={DNA}/export/safetensors"]) == 0
    # A run that starts anew takes the exports of the old one with it.
    assert main(["fit", *TINY, "--model.attention.name=dna", "--overwrite", "--trainer.max_epochs=1"]) == 0
    assert not Path(DNA, "export").exists()


def test_each_other_format_is_written_and_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", DNA, "--format=onnx"]) == 0
    assert "run by onnxruntime with 1 and 3 pictures: logits differ by" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(f"{DNA}/export/onnx/model.onnx", providers=["CPUExecutionProvider"])
    pictures = torch.randn(5, 3, 32, 32)
    (found,) = session.run(None, {"pictures": pictures.numpy()})
    # What the project promises of an export.
    assert (torch.from_numpy(found) - load_model(DNA)(pictures)).abs().max() <= 1e-4
    assert main(["export", SOFTMAX, "--format=timm", "--out=timm folder"]) == 0
    assert sorted(path.name for path in Path("timm folder").iterdir()) == ["config.json", "model.safetensors"]
    assert main(["export", DNA, "--format=released", "--out=released"]) == 0
    assert main(["test", *TINY, "--model.attention.name=dna", "--init_from=released/model.pth"]) == 0


def test_files_are_not_replaced_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", SOFTMAX, "--format=released", "--out=out"]
    assert main(words) == 0
    before = Path("out/model.pth").read_bytes()
    Path("out/model.pth").write_bytes(b"mine")
    assert main(words) == 2
    assert "dna: out/model.pth exists: --overwrite replaces it" in capsys.readouterr().err
    assert Path("out/model.pth").read_bytes() == b"mine"
    assert main([*words, "--overwrite"]) == 0
    assert len(Path("out/model.pth").read_bytes()) == len(before)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([DNA], "dna export: the following arguments are required: --format"),
        ([DNA, "--format=onx"], "unknown format 'onx' (--format); did you mean 'onnx'?"),
        ([DNA, "--fromat=onnx"], "dna export: the following arguments are required: --format"),
        (["nowhere", "--format=onnx"], "nowhere does not exist: a run folder is needed"),
        (
            [f"{DNA}/checkpoints/best.ckpt", "--format=onnx"],
            "best.ckpt is a file: a run folder is needed, or a checkpoint and --out",
        ),
        (["runs", "--format=onnx"], "runs: no run folder"),
        ([DNA, "--format=onnx", "--checkpoint=bst"], "unknown checkpoint 'bst' (runs/digits/dna/seed0); did you mean 'best'?"),
        ([DNA, "--format=timm"], "blocks.0.attn: timm has no layer for DnA; only softmax goes back under its names"),
        ([DNA, "--format=onnx", f"--out={DNA}/recipe.yaml"], "recipe.yaml is a file: --out names a folder"),
    ],
)
def test_wrong_words_are_one_line_and_write_nothing(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path.cwd().rglob("*"))
    assert main(["export", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert sorted(Path.cwd().rglob("*")) == before


def test_a_torn_checkpoint_is_told() -> None:
    file = Path(DNA, "checkpoints", "best.ckpt")
    file.write_bytes(file.read_bytes()[:-100])
    assert main(["export", DNA, "--format=safetensors"]) == 2
    assert not Path(DNA, "export").exists()


def test_the_help_names_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"{name}:" in shown for name in FORMATS)
