"""Windows: the host's numbers, its table and its shift mask, under every operator."""

import math

import pytest
import timm
import torch
from timm.models.swin_transformer import SwinTransformer, WindowAttention, get_relative_position_index
from torch import nn

from dna_suite.attention.multihead import MultiHeadAttention, written_out
from dna_suite.attention.record import record_maps
from dna_suite.backbones.hosts import replace_attention
from dna_suite.backbones.swin import WindowedAttention, relative_index
from dna_suite.backbones.timm_weights import state_dict_for_timm
from dna_suite.catalogue import OPERATORS, PATTERNS
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

# Stage 0: a grid of 8 x 8 in windows of 4, shifted in its second block; stage 1: one window, nothing to shift.
TINY = {
    "img_size": 32,
    "patch_size": 4,
    "window_size": 4,
    "embed_dim": 24,
    "depths": (2, 1),
    "num_heads": (2, 4),
    "num_classes": 5,
    "drop_path_rate": 0.0,
}


def host(**kwargs):
    torch.manual_seed(0)
    return draw(SwinTransformer(**{**TINY, **kwargs}))


def injected(name="softmax", **kwargs):
    model = host(**kwargs)
    replace_attention(model, AttentionSpec(name))
    # An operator's own numbers start as float32.
    return model.double()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["softmax", "dna"])
@torch.no_grad()
def test_the_golden_layer(name, fused):
    golden = LAYERS["swin"]
    model = nn.Sequential(WindowAttention(8, num_heads=2, window_size=2).double())
    replace_attention(model, AttentionSpec(name))
    # alpha starts as float32.
    layer = set_golden_weights(model.double()[0])
    layer.fused = fused
    table = [[0.6 * math.cos(0.9 * row + 0.5 * head) for head in range(2)] for row in range(9)]
    layer.relative_position_bias_table.copy_(torch.tensor(table, dtype=torch.float64))
    x, allowed = fill(20, (4, 4, 8), 1.0), torch.tensor(golden["mask"])
    expected = torch.tensor(golden["out"][name], dtype=torch.float64)
    assert difference(layer(x, mask=allowed), expected) <= TOLERANCE
    assert difference(layer(x, mask=torch.zeros(4, 4, 4).masked_fill(~allowed, -100.0)), expected) <= TOLERANCE
    # The same picture twice: windows are the fast index of the batch.
    assert difference(layer(torch.cat((x, x)), mask=allowed), torch.cat((expected, expected))) <= TOLERANCE


@pytest.mark.parametrize("window", [(7, 7), (2, 3)])
def test_the_index_is_timm_s(window):
    assert torch.equal(relative_index(window), get_relative_position_index(*window))


def test_softmax_is_the_host_and_weights_pass_both_ways():
    original, model = host(), host()
    sites = replace_attention(model, AttentionSpec())
    assert [(site.path, site.host) for site in sites[1:]] == [
        ("layers.0.blocks.1.attn", "WindowAttention"),
        ("layers.1.blocks.0.attn", "WindowAttention"),
    ]
    assert not layers_of(model, WindowAttention)
    expected = original(pictures())
    assert expected.abs().max() > 0.1
    with torch.no_grad():
        assert difference(model(pictures()), expected) <= TOLERANCE
    with written_out(model):
        assert difference(model(pictures()), expected) <= TOLERANCE
    fresh, back = SwinTransformer(**TINY).double(), SwinTransformer(**TINY).double().eval()
    replace_attention(fresh, AttentionSpec())
    fresh.load_state_dict(original.state_dict(), strict=True)
    assert difference(fresh.eval()(pictures()), expected) <= TOLERANCE
    back.load_state_dict(state_dict_for_timm(fresh), strict=True)
    assert torch.equal(back(pictures()), expected)
    names = model.no_weight_decay()
    assert names == original.no_weight_decay()
    assert "layers.0.blocks.1.attn.relative_position_bias_table" in names


def test_only_softmax_goes_back_to_timm():
    with pytest.raises(DnaError, match=r"layers\.0\.blocks\.0\.attn: timm has no layer for DnA"):
        state_dict_for_timm(injected("dna"))
    with pytest.raises(DnaError, match="no MultiHeadAttention"):
        state_dict_for_timm(host())


@pytest.mark.parametrize("name", ["dna", "dna-q", "dna-v", "dna-shared"])
def test_alpha_zero_keeps_the_function_of_the_host(name):
    original, model = host(), host()
    replace_attention(model, AttentionSpec(name, options={"alpha": 0.0}))
    assert difference(model(pictures()), original(pictures())) <= TOLERANCE


@pytest.mark.parametrize("name", OPERATORS)
def test_both_paths_of_every_operator_agree_and_train(name):
    model = injected(name)
    with written_out(model):
        trained = gradients(model, pictures())
    assert all(gradient.abs().max() > 1e-9 for key, gradient in trained.items() if not key.endswith("k.bias"))
    # A table that is trained takes the written-out path on a CPU: frozen, all other gradients come from the fused one.
    for layer in layers_of(model, WindowedAttention):
        layer.relative_position_bias_table.requires_grad_(False)
    fused = gradients(model, pictures())
    assert trained.keys() - fused.keys() == {key for key in trained if key.endswith("bias_table")}
    # Gradients are sums over 128 windows of terms up to a hundred.
    assert all(difference(fused[key], trained[key]) <= 1e-10 * (1 + trained[key].abs().max()) for key in fused)


def test_a_table_in_training_is_written_out_on_a_cpu():
    layer = only(injected(), WindowedAttention)
    s = {"q": torch.zeros(1, 2, 16, 12)}
    assert not layer.make_scores(s, layer.relative_bias(), None).fused
    with torch.no_grad():
        assert layer.make_scores(s, layer.relative_bias(), None).fused
    on_another_device = torch.empty(1, 2, 16, 16, device="meta", requires_grad=True)
    assert layer.make_scores(s, on_another_device, None).fused


@pytest.mark.parametrize("name", OPERATORS)
def test_a_blocked_key_has_no_weight_at_all(name):
    torch.manual_seed(1)
    model = injected(name)
    shifted = model.layers[0].blocks[1]
    with torch.no_grad():
        # Logits of several hundred: against them -100 blocks nothing.
        shifted.attn.k.weight.mul_(100)
    blocked = shifted.attn_mask != 0
    assert blocked.any()
    with record_maps(model) as records:
        model(pictures())
    record = records["layers.0.blocks.1.attn"]
    maps = [found for found in (record.positive, record.negative) if found is not None]
    for weights in maps:
        per_window = weights.unflatten(0, (2, 4))
        assert per_window[blocked.expand(2, 2, 4, 16, 16).transpose(1, 2)].eq(0).all()
        assert per_window.sum() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fused", [True, False])
@torch.no_grad()
def test_blocked_tokens_do_not_reach_the_output_in_any_precision(dtype, fused):
    torch.manual_seed(0)
    model = nn.Sequential(WindowAttention(8, num_heads=2, window_size=2))
    replace_attention(model, AttentionSpec("dna"))
    layer = model.to(dtype)[0]
    layer.fused = fused
    x = torch.randn(1, 4, 8, dtype=dtype)
    mask = torch.zeros(1, 4, 4, dtype=dtype)
    mask[:, :3, 3] = -100.0
    expected = layer(x, mask=mask)
    x[:, 3] = 50.0
    assert torch.equal(layer(x, mask=mask)[:, :3], expected[:, :3])


def test_another_window_resizes_the_table_as_timm_does():
    original, model = host(), injected()
    for each in (original, model):
        each.set_input_size(img_size=48, window_size=6)
    attention = model.layers[0].blocks[1].attn
    assert (attention.window_size, attention.window_area, attention.relative_position_bias_table.shape) == ((6, 6), 36, (121, 2))
    assert difference(model(pictures(48)), original(pictures(48))) <= TOLERANCE
    table = attention.relative_position_bias_table
    attention.set_window_size(6)
    assert attention.relative_position_bias_table is table
    attention.set_window_size((3, 6))
    assert attention.relative_bias().shape == (1, 2, 18, 18)


def test_buffers_come_back_after_a_model_is_made_on_the_meta_device():
    with torch.device("meta"):
        model = SwinTransformer(**TINY)
        replace_attention(model, AttentionSpec())
    model = model.to_empty(device="cpu").double()
    for module in model.modules():
        if hasattr(module, "init_non_persistent_buffers"):
            module.init_non_persistent_buffers()
    original = host()
    model.load_state_dict(original.state_dict(), strict=True)
    assert difference(model.eval()(pictures()), original(pictures())) <= TOLERANCE


def test_masks_that_are_made_for_each_call():
    original, model = host(dynamic_img_size=True), injected(dynamic_img_size=True)
    assert model.layers[0].blocks[1].attn_mask is None
    for side in (32, 48, 40):
        assert difference(model(pictures(side)), original(pictures(side))) <= TOLERANCE


@pytest.mark.parametrize("name", ["softmax", "dna"])
def test_checkpointing_gives_the_same_gradients(name):
    model = injected(name)
    plain = gradients(model, pictures())
    model.set_grad_checkpointing()
    model.train()
    again = gradients(model, pictures())
    assert all(torch.equal(plain[key], again[key]) for key in plain)


def test_features_of_every_stage():
    original, model = host(), injected()
    expected = original.forward_intermediates(pictures(), intermediates_only=True)
    found = model.forward_intermediates(pictures(), intermediates_only=True)
    assert [f.shape for f in found] == [(2, 24, 8, 8), (2, 48, 4, 4)]
    assert all(difference(a, b) <= TOLERANCE for a, b in zip(found, expected, strict=True))
    kwargs = {key: value for key, value in TINY.items() if key != "num_classes"}
    features = timm.create_model("swin_tiny_patch4_window7_224", features_only=True, out_indices=(0, 1), **kwargs).double().eval()
    replace_attention(features, AttentionSpec("dna"))
    assert len(layers_of(features, WindowedAttention)) == 3
    assert [f.shape for f in features(pictures())] == [(2, 8, 8, 24), (2, 4, 4, 48)]


def test_dropout_and_head_width_of_the_host_are_kept():
    layer = (
        WindowAttention(24, num_heads=2, head_dim=8, window_size=2, qkv_bias=False, attn_drop=0.2, proj_drop=0.3).double().eval()
    )
    model, x = nn.Sequential(layer), fill(20, (4, 4, 24), 1.0)
    expected = layer(x)
    replace_attention(model, AttentionSpec())
    assert difference(model(x), expected) <= TOLERANCE
    assert (model[0].attn_drop, model[0].proj_drop.p, model[0].q.bias) == (0.2, 0.3, None)


def test_new_streams_and_tables_start_as_the_host_s():
    torch.manual_seed(0)
    layer = WindowAttention(192, num_heads=6, window_size=7)
    model = nn.Sequential(layer)
    replace_attention(model, AttentionSpec("dna"))
    assert torch.equal(model[0].relative_position_bias_table, layer.relative_position_bias_table)
    # 36,864 draws: their deviation is within 2 % of 0.02.
    assert model[0].q_neg.weight.std().item() == pytest.approx(0.02, rel=0.02)
    model[0].reset_parameters()
    # 1,014 draws: within 10 %.
    assert model[0].relative_position_bias_table.std().item() == pytest.approx(0.02, rel=0.1)
    assert not torch.equal(model[0].relative_position_bias_table, layer.relative_position_bias_table)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_refused_by_name_and_leave_the_model_alone(pattern):
    model = host()
    with pytest.raises(DnaError, match=rf"attention pattern '{pattern}' cannot stand in WindowAttention: .* windows of 4 x 4"):
        replace_attention(model, AttentionSpec("dna", pattern=pattern))
    assert len(layers_of(model, WindowAttention)) == 3


def test_windows_of_another_size_are_refused():
    layer = only(injected(), WindowedAttention)
    with pytest.raises(DnaError, match="9 tokens are no window of 4 x 4: set_window_size"):
        layer(torch.zeros(4, 9, 24, dtype=torch.float64))
    with pytest.raises(DnaError, match="6 windows are no whole pictures of the mask's 4 windows"):
        layer(torch.zeros(6, 16, 24, dtype=torch.float64), mask=torch.zeros(4, 16, 16))


def test_heads_of_every_operator_are_those_of_the_stage():
    model = injected("dna")
    assert [layer.heads for layer in layers_of(model, MultiHeadAttention)] == [2, 2, 4]
    assert only(model, WindowedAttention).operator.alpha.shape == (2,)
