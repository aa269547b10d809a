"""The safetensors file: the suite's own names and the record that makes the model again."""

import pytest
import torch
from safetensors import safe_open

from dna_suite.backbones import load_model
from dna_suite.catalogue import OPERATORS
from dna_suite.export.safetensors import write_safetensors
from tests.export.model_cases import make, pictures


@pytest.mark.parametrize("name", OPERATORS)
def test_every_attention_comes_back_bit_for_bit(tmp_path, name):
    weights, model = make(name=name)
    write_safetensors(weights, model, tmp_path)
    back = load_model(tmp_path)
    assert torch.equal(back(pictures()), model(pictures()))
    assert back.classes == weights.record["classes"]
    assert back.transform == weights.record["transform"]
    assert back.attention == weights.attention


@pytest.mark.parametrize("backbone", ["deit_tiny_distilled", "swin_tiny", "convit_tiny"])
def test_every_backbone_comes_back(tmp_path, backbone):
    weights, model = make(backbone, "dna", options={"alpha": 0.25})
    write_safetensors(weights, model, tmp_path)
    assert torch.equal(load_model(tmp_path)(pictures()), model(pictures()))


def test_how_it_was_trained_stays_with_the_run(tmp_path):
    write_safetensors(*make(), tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert "optimisation" not in file.metadata()["dna"]
