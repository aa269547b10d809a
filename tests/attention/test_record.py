"""Recorded maps are those of the formula, and recording changes nothing."""

import torch
from torch import nn

from dna_suite.attention.record import record_maps
from dna_suite.attention.registry import build_attention
from dna_suite.spec import AttentionSpec


def test_maps_values_and_alpha_of_every_layer():
    torch.manual_seed(0)
    spec = AttentionSpec("dna", layers="1")
    layers = [build_attention(spec, dim=8, heads=2, layer=layer, depth=2, attn_drop=0.3) for layer in range(2)]
    model = nn.Sequential(*layers).eval()
    x = torch.randn(3, 5, 8)
    before = model(x)
    with record_maps(model) as records:
        assert torch.equal(model(x), before)
    assert set(records) == {"0", "1"}
    plain, dna = records["0"], records["1"]
    assert plain.negative is None
    assert plain.alpha is None
    assert set(dna.values) == {"v", "v_neg"}
    assert dna.alpha.tolist() == [0.5, 0.5]
    for weights in (plain.positive, dna.positive, dna.negative):
        assert weights.shape == (3, 2, 5, 5)
        # A row is a distribution: five float32 terms.
        assert (weights.sum(-1) - 1).abs().max() <= 1e-6
    out = dna.positive @ dna.values["v"] + dna.alpha.view(2, 1, 1) * (dna.negative @ dna.values["v_neg"])
    # The output again from what was recorded, in float32.
    assert (model[1].proj(out.transpose(1, 2).flatten(2)) - before).abs().max() <= 1e-6
    with torch.no_grad():
        model(torch.zeros(1, 5, 8))
    assert records["0"].positive.shape[0] == 3
