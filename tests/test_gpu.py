"""On a CUDA device: every recipe's smoke run in bf16 with the compile overlay, and attention that stays on fused kernels."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from dna_suite.attention.registry import build_attention
from dna_suite.catalogue import OPERATORS
from dna_suite.cli.main import main
from dna_suite.cli.shipped import shipped_files
from dna_suite.spec import AttentionSpec

pytestmark = pytest.mark.gpu

FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]


@pytest.mark.parametrize("recipe", [path.name for path in shipped_files("tasks")])
def test_a_smoke_run_in_bf16_with_compile(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overlays = [f"--config=configs/{name}.yaml" for name in ("smoke", "bf16", "compile")]
    words = [f"--config=tasks/{recipe}", *overlays, "--trainer.accelerator=gpu", "--model.attention.name=dna"]
    assert main(["fit", *words]) == 0
    run = Path("runs/smoke") / Path(recipe).stem / "dna" / "seed0"
    assert main(["validate", f"--run={run}"]) == 0
    assert main(["test", f"--run={run}"]) == 0
    record = json.loads((run / "result.json").read_text())
    assert record["hardware"]["accelerators"]
    # The same weights on the CPU in float32: bf16 keeps 8 bits of a logit, which may turn one near tie of 16 samples.
    assert main(["test", f"--run={run}", "--trainer.accelerator=cpu", "--trainer.precision=32-true"]) == 0
    again = json.loads((run / "result.json").read_text())
    difference = record["metrics"]["test/top1"]["value"] - again["metrics"]["test/top1"]["value"]
    assert abs(difference) <= 1 / 16


@pytest.mark.parametrize("name", OPERATORS)
def test_no_operator_falls_back_to_the_math_kernel(name: str) -> None:
    layer = build_attention(AttentionSpec(name), dim=192, heads=3, layer=0).cuda().bfloat16()
    x = torch.randn(2, 197, 192, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    # Outside these kernels SDPA raises; the math kernel would keep 197 x 197 maps in silence.
    with sdpa_kernel(FUSED):
        layer(x).float().square().mean().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


@pytest.mark.parametrize("name", OPERATORS)
def test_an_empty_row_gives_zeros_and_finite_gradients(name: str) -> None:
    layer = build_attention(AttentionSpec(name), dim=64, heads=1, layer=0, proj_bias=False).cuda()
    x = torch.randn(1, 9, 64, device="cuda", requires_grad=True)
    mask = torch.ones(9, 9, dtype=torch.bool, device="cuda")
    mask[4] = False
    out = layer(x, mask=mask)
    out.square().sum().backward()
    assert torch.equal(out[0, 4], torch.zeros(64, device="cuda"))
    assert torch.isfinite(x.grad).all()
