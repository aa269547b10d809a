"""Weights as a checkpoint file that the released DnA code ("rjccv/DnA", vit/) loads."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from dna_suite.backbones.released import SCALERS, state_dict_for_released
from dna_suite.backbones.weights import Weights, load_into, read_weights
from dna_suite.export.agreement import compare, probe

FILE = "model.pth"
# Moving the class token's row of positions into the token is exact, and so is what follows.
LIMIT = 1e-6


def write_released(weights: Weights, model: nn.Module, folder: Path) -> str:
    """Writes model.pth: the fused layout under `model`, and compares what it computes when read back.

    Args:
        weights: of a run.
        model: the model that they are in.
        folder: gets the file.

    Returns:
        What was checked, in words.

    Raises:
        DnaError: the released code has no model for these weights, or what was read back computes something else.
    """
    state = state_dict_for_released(model)
    torch.save({"model": state}, folder / FILE)
    pictures = probe(model, 2)
    with torch.inference_mode():
        expected = model(pictures)
        load_into(model, read_weights(folder / FILE), weights.attention)
        error = compare(expected, model(pictures), LIMIT, FILE)
    alphas = sum(name.endswith(SCALERS) for name in state)
    return f"{len(state)} tensors, {alphas} of them {SCALERS}, read back: logits differ by {error:.0e} at most"
