"""Weights as one safetensors file, with the record of their run beside the tensors."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from dna_suite.backbones.weights import Weights, read_weights
from dna_suite.errors import DnaError

FILE = "model.safetensors"
# What makes the model again, and says what it was trained for; how it was trained stays with the run.
RECORDED = ("version", "task", "recipe", "attention", "backbone", "classes", "transform")


def write_safetensors(weights: Weights, model: nn.Module, folder: Path) -> str:
    """Writes model.safetensors under the suite's own names and reads it back.

    Args:
        weights: of a run.
        model: the model that they are in.
        folder: gets the file.

    Returns:
        What was checked, in words.

    Raises:
        DnaError: what was read back is not what was written.
    """
    record = {key: (weights.record or {})[key] for key in RECORDED if key in (weights.record or {})}
    state = {name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
    save_file(state, folder / FILE, metadata={"dna": json.dumps(record)})
    back = read_weights(folder / FILE)
    same = back.tensors.keys() == state.keys() and all(torch.equal(back.tensors[name], state[name]) for name in state)
    if not same or back.attention != weights.attention:
        raise DnaError(f"{FILE}: what was read back is not what was written")
    return f"{len(state)} tensors, read back bit for bit"
