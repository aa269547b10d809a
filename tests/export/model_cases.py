"""Small models with random weights, as the exports get them."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from dna_suite.backbones.images import build_image_model
from dna_suite.backbones.weights import Weights
from dna_suite.catalogue import BACKBONES
from dna_suite.spec import AttentionSpec


def make(backbone: str = "vit_digits", name: str = "softmax", side: int = 32, **kwargs: Any) -> tuple[Weights, nn.Module]:
    """A tiny model in eval mode and the weights that describe it."""
    torch.manual_seed(3)
    position = kwargs.pop("class_token_position", True)
    spec = AttentionSpec(name, **kwargs)
    model = build_image_model(
        backbone, size="tiny", attention=spec, num_classes=7, image_size=side, class_token_position=position
    )
    for parameter in model.parameters():
        # Large enough that every layer shows in the logits.
        nn.init.normal_(parameter, std=0.2)
    shape = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(BACKBONES[backbone]["tiny"]).items()}
    record = {
        "version": 1,
        "task": "classification",
        "recipe": "digits",
        "attention": spec.plain(),
        "backbone": {
            "name": backbone,
            "size": "tiny",
            **shape,
            "image_size": side,
            "class_token_position": position,
            "drop_path": 0.0,
        },
        "classes": [f"class {number}" for number in range(7)],
        "transform": {"resize": 36, "crop_ratio": 0.9, "interpolation": "bicubic", "mean": [0.4] * 3, "std": [0.2] * 3},
        "optimisation": {"seed": 0},
    }
    return Weights(dict(model.state_dict()), spec, Path("best.ckpt"), record), model.eval()


def pictures(side: int = 32, batch: int = 4) -> torch.Tensor:
    """Pictures that no export has seen."""
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(11))
