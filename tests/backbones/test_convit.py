"""Gated positions: the host's numbers, and the positional map in the positive branch only."""

import math

import pytest
import timm
import torch
from timm.models.convit import GPSA, MHSA, ConVit
from torch import nn

from dna_suite.attention.multihead import MultiHeadAttention, written_out
from dna_suite.attention.record import record_maps
from dna_suite.backbones.convit import PositionalAttention, relative_places
from dna_suite.backbones.hosts import replace_attention
from dna_suite.backbones.timm_weights import state_dict_for_timm
from dna_suite.catalogue import OPERATORS
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec
from tests.backbones.host_cases import (
    LAYERS,
    TOLERANCE,
    difference,
    draw,
    fill,
    gradients,
    layers_of,
    only,
    pictures,
    set_golden_weights,
)

TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 6, "depth": 3, "num_heads": 4, "local_up_to_layer": 2, "num_classes": 5}


def host(**kwargs):
    torch.manual_seed(0)
    return draw(ConVit(**{**TINY, **kwargs}))


def injected(name="softmax", **kwargs):
    model = host(**kwargs)
    replace_attention(model, AttentionSpec(name))
    # An operator's own numbers start as float32.
    return model.double()


def golden_layer(name):
    model = nn.Sequential(GPSA(8, num_heads=2).double())
    replace_attention(model, AttentionSpec(name))
    # alpha starts as float32.
    layer = set_golden_weights(model.double()[0])
    with torch.no_grad():
        rows = [[0.3 * math.sin(1.3 * i + 0.7 * head + 0.2) for i in range(3)] for head in range(2)]
        layer.pos_proj.weight.copy_(torch.tensor(rows, dtype=torch.float64))
        layer.pos_proj.bias.copy_(torch.tensor([0.05, -0.02], dtype=torch.float64))
        layer.gating_param.copy_(torch.tensor([0.7, -0.4], dtype=torch.float64))
    return layer


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["softmax", "dna"])
def test_the_golden_layer(name, fused):
    layer = golden_layer(name)
    layer.fused = fused
    expected = torch.tensor(LAYERS["gpsa"]["out"][name], dtype=torch.float64)
    assert difference(layer(fill(20, (1, 4, 8), 1.0)), expected) <= TOLERANCE


def test_the_places_are_timm_s():
    gpsa = GPSA(8, num_heads=2)
    assert torch.equal(relative_places(9), gpsa.get_rel_indices(9)[0])


def test_softmax_is_the_host_and_weights_pass_both_ways():
    original, model = host(), host()
    sites = replace_attention(model, AttentionSpec())
    assert [(site.path, site.host) for site in sites] == [
        ("blocks.0.attn", "GPSA"),
        ("blocks.1.attn", "GPSA"),
        ("blocks.2.attn", "MHSA"),
    ]
    assert not layers_of(model, GPSA | MHSA)
    expected = original(pictures())
    assert expected.abs().max() > 0.1
    assert difference(model(pictures()), expected) <= TOLERANCE
    with written_out(model):
        assert difference(model(pictures()), expected) <= TOLERANCE
    fresh, back = ConVit(**TINY).double(), ConVit(**TINY).double().eval()
    replace_attention(fresh, AttentionSpec())
    fresh.load_state_dict(original.state_dict(), strict=True)
    assert difference(fresh.eval()(pictures()), expected) <= TOLERANCE
    back.load_state_dict(state_dict_for_timm(fresh), strict=True)
    assert torch.equal(back(pictures()), expected)


def test_biases_of_the_projections_pass_both_ways():
    original = host(qkv_bias=True)
    model = host(qkv_bias=True)
    replace_attention(model, AttentionSpec())
    assert difference(model(pictures()), original(pictures())) <= TOLERANCE
    state = state_dict_for_timm(model)
    assert state.keys() == original.state_dict().keys()
    assert all(torch.equal(state[key], tensor) for key, tensor in original.state_dict().items())


@pytest.mark.parametrize("name", ["dna", "dna-q", "dna-v", "dna-shared"])
def test_alpha_zero_keeps_the_function_of_the_host(name):
    original, model = host(), host()
    replace_attention(model, AttentionSpec(name, options={"alpha": 0.0}))
    assert difference(model(pictures()), original(pictures())) <= TOLERANCE


@pytest.mark.parametrize("name", OPERATORS)
def test_both_paths_of_every_operator_agree_and_train(name):
    model = injected(name)
    fused = gradients(model, pictures())
    with written_out(model):
        expected = gradients(model, pictures())
    # Gradients are sums over 32 rows of terms up to a hundred.
    assert all(difference(fused[key], expected[key]) <= 1e-10 * (1 + expected[key].abs().max()) for key in expected)
    # A softmax does not see a constant added to its logits: the bias of the positional projection learns nothing, as in the host.
    assert all(gradient.abs().max() > 1e-9 for key, gradient in expected.items() if not key.endswith("pos_proj.bias"))


@pytest.mark.parametrize("name", [name for name in OPERATORS if name.startswith("dna")])
def test_the_negative_branch_has_no_positions(name):
    layer, x = golden_layer(name), fill(20, (1, 4, 8), 1.0)
    with record_maps(layer) as records:
        layer(x)
    before = records[""]
    with torch.no_grad():
        layer.gating_param.fill_(50.0)
    with record_maps(layer) as records:
        layer(x)
    # A gate of sigmoid(50) is 1 up to float64's last digit: the positive map is the positional one.
    assert torch.equal(records[""].negative, before.negative)
    positions = (layer.pos_proj(relative_places(4).double())).permute(2, 0, 1).softmax(-1)
    assert difference(records[""].positive, positions) <= TOLERANCE
    assert difference(before.positive, positions) > 0.01


@pytest.mark.parametrize("name", [name for name in OPERATORS if not name.startswith("dna")])
def test_one_map_is_gated_as_a_whole(name):
    layer, x = golden_layer(name), fill(20, (1, 4, 8), 1.0)
    with torch.no_grad():
        layer.proj.weight.fill_(0.5)
    gate = layer.gating_param.sigmoid().view(-1, 1, 1)
    positions = (layer.pos_proj(relative_places(4).double())).permute(2, 0, 1).softmax(-1)
    s = layer.project(x)
    content = layer.operator(s, super(PositionalAttention, layer).make_scores(s, None, None))
    merged = ((1 - gate) * content + gate * (positions @ s["v"])).transpose(1, 2).flatten(2)
    assert difference(layer(x), layer.proj(merged)) <= TOLERANCE


@pytest.mark.parametrize("name", ["softmax", "dna", "differential"])
@pytest.mark.parametrize("mask_mode", ["neg_inf", "zero_logit"])
def test_a_pattern_holds_for_both_maps_and_knows_the_class_token(name, mask_mode):
    spec = AttentionSpec(name, pattern="longformer", options={"window": 2, "mask_mode": mask_mode})
    model = host()
    replace_attention(model, spec)
    # The class token joins after the gated blocks.
    assert [layer.pattern.prefix for layer in layers_of(model, MultiHeadAttention)] == [0, 0, 1]
    out = model(pictures())
    with written_out(model), record_maps(model) as records:
        assert difference(model(pictures()), out) <= TOLERANCE
    place = torch.arange(16)
    far = (place[:, None] - place[None, :]).abs() > 2
    blocked = records["blocks.0.attn"].positive[:, :, far]
    gated = model.blocks[0].attn.positional_map(model.blocks[0].attn.make_scores({"q": torch.zeros(1, 4, 16, 6)}, None, None))
    # Under zero_logit a blocked pair stays in the sum with logit 0, in both maps.
    assert gated[:, :, far].eq(0).all() == blocked.eq(0).all() == (mask_mode == "neg_inf")
    assert records["blocks.2.attn"].positive[:, :, 0].gt(0).all()


def test_dropout_acts_on_the_gated_map_as_in_the_host():
    original = GPSA(8, num_heads=2, attn_drop=0.4).double()
    model = nn.Sequential(original)
    x = torch.randn(3, 16, 8, dtype=torch.float64)
    torch.manual_seed(3)
    expected = original(x)
    replace_attention(model, AttentionSpec())
    torch.manual_seed(3)
    # One seed, one dropout of one map [3, 2, 16, 16]: the same entries are gone.
    assert difference(model(x), expected) <= TOLERANCE
    model.eval()
    assert difference(model(x), original.eval()(x)) <= TOLERANCE


def test_a_grid_that_is_no_square_is_refused():
    layer = golden_layer("softmax")
    with pytest.raises(DnaError, match="square grid of patches: 6 tokens are none"):
        layer(torch.zeros(1, 6, 8, dtype=torch.float64))
    # Other squares are new places.
    assert layer(torch.zeros(1, 9, 8, dtype=torch.float64)).shape == (1, 9, 8)
    assert layer(torch.zeros(1, 4, 8, dtype=torch.float64)).shape == (1, 4, 8)


def test_buffers_come_back_after_a_model_is_made_on_the_meta_device():
    with torch.device("meta"):
        model = ConVit(**TINY)
        replace_attention(model, AttentionSpec())
        model(torch.empty(1, 3, 32, 32))
    model = model.to_empty(device="cpu").double()
    for module in model.modules():
        if hasattr(module, "init_non_persistent_buffers"):
            module.init_non_persistent_buffers()
    original = host()
    model.load_state_dict(original.state_dict(), strict=True)
    assert difference(model.eval()(pictures()), original(pictures())) <= TOLERANCE


def test_features_of_every_block():
    original, model = host(), injected()
    expected = original.forward_intermediates(pictures(), intermediates_only=True)
    found = model.forward_intermediates(pictures(), intermediates_only=True)
    assert [f.shape for f in found] == [(2, 24, 4, 4)] * 3
    assert all(difference(a, b) <= TOLERANCE for a, b in zip(found, expected, strict=True))
    kwargs = {key: value for key, value in TINY.items() if key != "num_classes"}
    features = timm.create_model("convit_tiny", features_only=True, out_indices=(0, 2), **kwargs).double().eval()
    replace_attention(features, AttentionSpec("dna"))
    assert len(layers_of(features, PositionalAttention)) == 2
    assert [f.shape for f in features(pictures())] == [(2, 24, 4, 4)] * 2


def test_layers_start_as_the_host_s():
    torch.manual_seed(0)
    model = ConVit(**{**TINY, "num_heads": 9, "embed_dim": 24})
    before = {name: tensor.clone() for name, tensor in model.blocks[0].attn.state_dict().items()}
    replace_attention(model, AttentionSpec("dna"))
    attention = only(model, PositionalAttention)
    assert torch.equal(attention.v.weight, torch.eye(216))
    assert attention.q_neg.bias is None
    # 46,656 draws: their deviation is within 2 % of 0.02.
    for stream in (attention.q_neg, attention.v_neg):
        assert stream.weight.std().item() == pytest.approx(0.02, rel=0.02)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.fill_(9.0)
    attention.reset_parameters()
    for name in ("v.weight", "pos_proj.weight", "pos_proj.bias", "gating_param"):
        assert torch.equal(attention.state_dict()[name], before[name])
    assert attention.q.weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_half_precision_keeps_its_type():
    model = host()
    replace_attention(model, AttentionSpec("dna"))
    model.bfloat16()
    out = model(pictures().bfloat16())
    assert out.dtype == torch.bfloat16
    assert [layer.operator.alpha.dtype for layer in layers_of(model, MultiHeadAttention)] == [torch.float32] * 3
    assert out.isfinite().all()
