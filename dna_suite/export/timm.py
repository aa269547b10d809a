"""Weights as a folder that timm loads by itself, without this suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save_file
from timm.models import get_pretrained_cfg, is_model
from torch import nn

from dna_suite.backbones.timm_weights import state_dict_for_timm
from dna_suite.backbones.weights import Weights
from dna_suite.errors import DnaError
from dna_suite.export.agreement import compare, probe

FILES = ("config.json", "model.safetensors")
# float32 sums of a packed projection in another order.
LIMIT = 1e-5


def write_timm(weights: Weights, model: nn.Module, folder: Path) -> str:
    """Writes config.json and model.safetensors, lets plain timm build the model from them and compares the logits.

    Args:
        weights: of a run.
        model: the model that they are in.
        folder: gets the files.

    Returns:
        What was checked, in words.

    Raises:
        DnaError: an attention layer is none of timm's, or timm's model computes something else.
    """
    state = {name: tensor.contiguous().clone() for name, tensor in state_dict_for_timm(model).items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    assert weights.record is not None
    (folder / "config.json").write_text(json.dumps(describe(weights.record), indent=2) + "\n", encoding="utf-8")
    back = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    pictures = probe(model, 2)
    with torch.inference_mode():
        error = compare(model(pictures), back(pictures), LIMIT, "model.safetensors")
    built = "timm.create_model('local-dir:DIR', pretrained=True)"
    return f"{len(state)} tensors, built by {built}: logits differ by {error:.0e} at most"


def describe(record: dict[str, Any]) -> dict[str, Any]:
    """What timm needs to build the model and to prepare pictures for it, from the record of a run."""
    backbone, transform = record["backbone"], record["transform"]
    architecture, arguments = build_arguments(backbone)
    defaults = get_pretrained_cfg(architecture)
    assert defaults is not None, "every architecture that is named here has published weights"
    side = backbone["image_size"]
    return {
        "architecture": architecture,
        "num_classes": len(record["classes"]),
        "label_names": list(record["classes"]),
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [3, side, side],
            "fixed_input_size": True,
            "num_classes": len(record["classes"]),
            "mean": list(transform["mean"]),
            "std": list(transform["std"]),
            "interpolation": transform.get("interpolation") or "bicubic",
            "crop_pct": transform.get("crop_ratio") or 1.0,
            "first_conv": defaults.first_conv,
            "classifier": defaults.classifier,
        },
    }


def build_arguments(backbone: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """timm's name for a backbone, and every number that makes it ours.

    Raises:
        DnaError: timm has no such architecture.
    """
    name, sides = backbone["name"], {"img_size": backbone["image_size"], "patch_size": backbone["patch"]}
    if "window" in backbone:
        shape = {"window_size": backbone["window"], "embed_dim": backbone["dim"], "depths": list(backbone["depths"])}
        return _known(f"{name}_patch4_window7_224"), {**sides, **shape, "num_heads": _stage_heads(backbone)}
    if "local" in backbone:
        # timm multiplies the width by the heads.
        shape = {"embed_dim": backbone["dim"] // backbone["heads"], "local_up_to_layer": backbone["local"]}
        return _known(name), {**sides, **shape, "depth": backbone["depth"], "num_heads": backbone["heads"]}
    plain = f"{name}_patch16_224"
    shape = {"embed_dim": backbone["dim"], "depth": backbone["depth"], "num_heads": backbone["heads"]}
    if not backbone["class_token_position"]:
        shape["no_embed_class"] = True
    # A ViT of no published size is the smallest of them with other numbers.
    return plain if is_model(plain) else "vit_tiny_patch16_224", {**sides, **shape}


def _stage_heads(backbone: dict[str, Any]) -> list[int]:
    return [backbone["heads"] * 2**stage for stage in range(len(backbone["depths"]))]


def _known(architecture: str) -> str:
    if not is_model(architecture):
        raise DnaError(f"timm has no {architecture}")
    return architecture
