"""Softmax attention and the wider ones: widths, scale, and the form for other devices."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from dna_suite.attention.registry import build_attention
from dna_suite.attention.scores import Scores
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec

from .golden_cases import make_operator


def build(name, **settings):
    return build_attention(AttentionSpec(name), **{"dim": 768, "heads": 12, "device": "meta", **settings})


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("softmax", {"q": (768, 768), "k": (768, 768), "v": (768, 768), "proj": (768, 768)}),
        ("softmax-wide", {"q": (1152, 768), "k": (1152, 768), "v": (1152, 768), "proj": (768, 1152)}),
        ("softmax-value", {"q": (768, 768), "k": (768, 768), "v": (1536, 768), "proj": (768, 1536)}),
    ],
)
def test_projections_have_the_operator_s_widths(name, shapes):
    layer = build(name, gated=True)
    assert {stream: tuple(layer.get_submodule(stream).weight.shape) for stream in shapes} == shapes
    assert layer.gate.out_features == layer.proj.in_features


def test_the_scale_follows_the_width_of_one_logit_map():
    assert build("softmax").scale == 64**-0.5
    assert build("softmax-wide").scale == pytest.approx(96**-0.5, rel=1e-15)
    assert build("softmax-value").scale == 64**-0.5
    assert build("differential", layer=0).scale == pytest.approx(32**-0.5, rel=1e-15)
    # A host's own factor keeps its meaning.
    assert build("softmax-wide", scale=0.3).scale == pytest.approx(0.3 * 1.5**-0.5, rel=1e-15)


@pytest.mark.parametrize(("name", "dim", "least"), [("softmax-wide", 15, 2), ("differential", 15, 2)])
def test_head_widths_that_the_ratio_cannot_divide_are_refused(name, dim, least):
    with pytest.raises(DnaError, match=rf"head width 5 \(model\.dim / model\.heads\) must be a multiple of {least}"):
        build(name, dim=dim, heads=3, layer=0)


def test_norms_of_the_host_s_width_are_refused_and_those_of_the_operator_s_taken():
    with pytest.raises(DnaError, match="SoftmaxWide has 12 channels where q_norm of the host has 8"):
        build("softmax-wide", dim=16, heads=2, q_norm=torch.nn.LayerNorm(8))
    with pytest.raises(DnaError, match="SoftmaxValue has 32 channels where norm of the host has 16"):
        build("softmax-value", dim=16, heads=2, norm=torch.nn.LayerNorm(16))
    layer = build("softmax-value", dim=16, heads=2, q_norm=torch.nn.LayerNorm(8), device="cpu")
    assert layer(torch.randn(1, 3, 16)).shape == (1, 3, 16)


@pytest.mark.parametrize("masked", [False, True], ids=["dense", "masked"])
def test_wide_values_on_other_devices_are_the_same_function_and_stay_off_the_slow_kernel(masked, monkeypatch):
    monkeypatch.setattr("dna_suite.attention.softmax.prefers_tiles", lambda q, scores: False)
    generator = torch.Generator().manual_seed(2)
    widths = {"q": 4, "k": 4, "v": 8}
    s = {key: torch.randn(2, 2, 7, width, generator=generator, dtype=torch.float64) for key, width in widths.items()}
    mask = torch.ones(7, 7, dtype=torch.bool).tril() if masked else None
    operator = make_operator("softmax-value")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        found = operator(s, Scores(0.7, mask=mask))
    # Float64 sums of seven products in another order.
    assert (found - operator(s, Scores(0.7, mask=mask, fused=False))).abs().max() <= 1e-12
