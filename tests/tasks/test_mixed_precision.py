"""Gradients under a loss scaler: clipped at their own size, and left alone where they overflowed."""

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dna_suite.spec import OptimSpec
from dna_suite.tasks.optim import build_optimizer

# A unit vector; the loss below has ten times it as its gradient.
DIRECTION = torch.tensor([0.6, 0.0, -0.8])


class Slope(pl.LightningModule):
    """A plane of slope 10, and the norms of the gradients that reach the optimiser before clipping."""

    def __init__(self, optim: OptimSpec, slope: float = 10.0) -> None:
        super().__init__()
        self.optim, self.slope, self.norms = optim, slope, []
        self.net = nn.Linear(3, 1, bias=False)
        nn.init.zeros_(self.net.weight)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.slope * (self.net.weight.squeeze(0) * DIRECTION).sum()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.norms.append(self.net.weight.grad.norm().item())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return build_optimizer(self.net, self.optim, self.optim.lr)


def train(task: Slope, clip: float | None, precision: MixedPrecision) -> None:
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        plugins=[precision],
        gradient_clip_val=clip,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(task, DataLoader(torch.zeros(1, 1)))


def half_precision(scale: float) -> MixedPrecision:
    """fp16 as on a GPU, with the scaler that Lightning would make there."""
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale))


@pytest.mark.parametrize(("clip", "norm"), [(1.0, 1.0), (100.0, 10.0), (None, 10.0)])
@pytest.mark.parametrize("scale", [1.0, 65536.0])
def test_clipping_acts_on_unscaled_gradients(clip: float | None, norm: float, scale: float) -> None:
    # Lightning-AI/pytorch-lightning#9330: clipping gradients that were still multiplied with the scale.
    task = Slope(OptimSpec(name="sgd", beta1=0.0, weight_decay=0.0, lr=1.0))
    train(task, clip, half_precision(scale))
    # At rate 1 plain SGD moves by the clipped gradient; float32, and clipping adds 1e-6 to the norm.
    torch.testing.assert_close(task.net.weight.detach()[0], -norm * DIRECTION, rtol=2e-6, atol=0)
    assert task.norms == [pytest.approx(10.0, rel=1e-6)]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_step_whose_gradients_overflow_changes_no_weight(name: str) -> None:
    precision = half_precision(65536.0)
    task = Slope(OptimSpec(name=name, lr=1.0), slope=1e36)
    train(task, 1.0, precision)
    assert torch.equal(task.net.weight, torch.zeros(1, 3))
    assert precision.scaler.get_scale() == 32768.0
