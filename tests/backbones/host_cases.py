"""Hosts of windows and gates: golden layers as modules, and small timm models whose every parameter is drawn."""

import json
import math
from pathlib import Path

import torch
from torch import nn

from tests.attention.golden_cases import ALPHA, fill

LAYERS = {
    layer["name"].removeprefix("layer/"): layer
    for layer in json.loads((Path(__file__).parents[1] / "golden" / "hosts_golden.json").read_text())["layers"]
}
# Stream ids of the golden weights; their amplitude is 0.5.
WEIGHTS = {"q": 31, "k": 32, "v": 33, "q_neg": 34, "v_neg": 35, "proj": 36}
# Float64 sums of a hundred products, and the golden numbers' 15 digits.
TOLERANCE = 1e-12


def set_golden_weights(layer):
    """Gives a layer of width 8 the golden projections, biases and alpha."""
    with torch.no_grad():
        for name, stream in WEIGHTS.items():
            linear = getattr(layer, name, None)
            if linear is None:
                continue
            linear.weight.copy_(fill(stream, linear.weight.shape, 0.5))
            if linear.bias is not None:
                linear.bias.copy_(torch.tensor([0.1 * math.cos(0.4 * i + stream) for i in range(8)], dtype=torch.float64))
        if getattr(layer.operator, "alpha", None) is not None:
            layer.operator.alpha.copy_(torch.tensor(ALPHA, dtype=torch.float64))
    return layer


def draw(model):
    """Every parameter of a float64 model drawn: timm starts biases, tables and the head where a lost one would not be seen."""
    model = model.double().eval()
    generator = torch.Generator().manual_seed(5)
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            parameter.normal_(std=0.2, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1)
    return model


def pictures(side=32, batch=2):
    """Normal pictures, float64."""
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def difference(a, b):
    """Largest absolute difference."""
    return (a - b).abs().max().item()


def gradients(model, x):
    """The gradient of each trained parameter for a sum of squares."""
    model.zero_grad()
    model(x).square().sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.requires_grad}


def layers_of(model, kind):
    """The modules of one class."""
    return [module for module in model.modules() if isinstance(module, kind)]


def only(model: nn.Module, kind):
    """The first module of one class."""
    return layers_of(model, kind)[0]
