"""The gradient of every optimiser step is that of the mean over the step's samples, as a bare loop computes it."""

import pytest
import torch
from toy_loop import ToyData, ToyTask, make_trainer
from toy_windows import Gradients, bare_gradients, make_net

# Rounding of a sum of a few dozen float64 numbers.
TOLERANCE = 5e-15


@pytest.mark.parametrize(
    ("length", "batch", "accumulate"),
    # A last window of 2 samples; of two micro-batches; of one whole batch; no accumulation with a last batch of 2; whole windows.
    [(50, 12, 2), (64, 12, 4), (36, 12, 2), (50, 12, 1), (48, 12, 2)],
)
def test_every_window_has_the_gradient_of_its_mean(tmp_path, length, batch, accumulate):
    gradients = Gradients()
    options = {"accumulate_grad_batches": accumulate, "gradient_clip_val": None, "max_epochs": 1, "limit_val_batches": 0}
    trainer = make_trainer(tmp_path, gradients, enable_checkpointing=False, **options)
    trainer.fit(ToyTask(make_net(), mixing=False), ToyData(length, batch=batch, noise=0.0, dtype=torch.float64))
    expected = bare_gradients(length, batch, accumulate)
    assert len(gradients.seen) == len(expected)
    for seen, wanted in zip(gradients.seen, expected, strict=True):
        assert float((seen - wanted).norm() / wanted.norm()) < TOLERANCE
