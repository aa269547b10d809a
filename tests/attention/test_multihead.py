"""The attention layer: named streams, packed weights, cross-attention, dropout, and what a half-precision model keeps."""

import math

import pytest
import torch

from dna_suite.attention.multihead import written_out
from dna_suite.attention.registry import build_attention
from dna_suite.spec import AttentionSpec

from .golden_cases import GOLDEN, LAYER, OPERATORS, fill, golden_parameters, split_name

LAYERS = {layer["name"]: layer for layer in GOLDEN["layers"]}
# The golden layer of each operator that has one.
EXPECTED = LAYERS["layer/projected"]["out"] | {"differential": LAYERS["layer/differential"]["out"]}


def build(name, **kwargs):
    torch.manual_seed(0)
    name, options = split_name(name)
    settings = {"dim": 8, "heads": 2, "layer": LAYER, "depth": LAYER + 1, **kwargs}
    return build_attention(AttentionSpec(name, options=options), **settings).double()


def tokens(*shape, seed=5):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "written-out"])
@pytest.mark.parametrize("name", EXPECTED)
def test_golden_layer(name, fused):
    layer, state = build(name), {}
    for number, stream in enumerate(("q", "k", "v", "q_neg", "v_neg", "proj"), start=31):
        if hasattr(layer, stream):
            state[f"{stream}.weight"] = fill(number, (8, 8), 0.5)
            state[f"{stream}.bias"] = torch.tensor([0.1 * math.cos(0.4 * i + number) for i in range(8)], dtype=torch.float64)
    parameters = golden_parameters(layer.operator)
    state |= {f"operator.{key}": torch.tensor(value, dtype=torch.float64) for key, value in parameters.items()}
    layer.load_state_dict(state)
    layer.fused = fused
    out = layer(fill(20, (1, 5, 8), 1.0))
    # The golden file's own tolerance, for float64 sums in another order.
    assert (out[0] - torch.tensor(EXPECTED[name], dtype=torch.float64)).abs().max() <= 1e-12


def released_forward(x, fused, alpha, sign):
    """The released code's formula on a packed projection with rows [Q+, Q-, K, V+, V-] (rjccv/DnA, vit), for two heads of 4."""
    weight, bias, proj_weight, proj_bias = fused
    packed = (x @ weight.T + bias).unflatten(-1, (5, 2, 4))
    q, q_neg, k, v, v_neg = packed.permute(2, 0, 3, 1, 4)
    positive = (q @ k.transpose(-2, -1) / 2).softmax(-1) @ v
    negative = torch.nn.functional.softmin(q_neg @ k.transpose(-2, -1) / 2, dim=-1) @ v_neg
    merged = (positive + sign * alpha.view(2, 1, 1) * negative).transpose(1, 2).flatten(2)
    return merged @ proj_weight.T + proj_bias


@pytest.mark.parametrize("layout", ["fused", "legacy"])
@pytest.mark.parametrize("sign", [1, -1], ids=["plus", "minus"])
def test_the_released_layouts_and_signs_are_named_streams(layout, sign):
    weight, bias, proj_weight, proj_bias = tokens(40, 8, seed=1), tokens(40, seed=2), tokens(8, 8, seed=3), tokens(8, seed=4)
    alpha, x = torch.tensor([0.5, -0.3], dtype=torch.float64), tokens(2, 6, 8)
    order = ("q", "q_neg", "k", "v", "v_neg")
    parts = {
        f"{name}.{kind}": third
        for kind, packed in {"weight": weight, "bias": bias}.items()
        for name, third in zip(order, packed.chunk(5), strict=True)
    }
    state = {"proj.weight": proj_weight, "proj.bias": proj_bias, "operator.alpha": sign * alpha}
    if layout == "fused":
        state |= parts
    else:
        for kind in ("weight", "bias"):
            state[f"qkv.{kind}"] = torch.cat([parts[f"{name}.{kind}"] for name in ("q", "k", "v")])
            state |= {f"{name}.{kind}": parts[f"{name}.{kind}"] for name in ("q_neg", "v_neg")}
    layer = build("dna")
    layer.load_state_dict(state)
    expected = released_forward(x, (weight, bias, proj_weight, proj_bias), alpha, sign)
    # Float64 sums of 8 products with unit weights, in another order.
    assert (layer(x) - expected).abs().max() <= 1e-12
    assert (layer(x) - released_forward(x, (weight, bias, proj_weight, proj_bias), alpha, -sign)).abs().max() > 0.1


def test_a_packed_projection_of_a_wrong_layer_is_not_swallowed():
    layer = build("softmax")
    state = {"qkv.weight": tokens(27, 8), "proj.weight": tokens(8, 8), "proj.bias": tokens(8)}
    with pytest.raises(RuntimeError, match=r"size mismatch for q\.weight"):
        layer.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\) in state_dict: \"qkv\.weight\""):
        layer.load_state_dict({**state, "qkv.weight": tokens(25, 8)})


@pytest.mark.parametrize("name", OPERATORS)
def test_queries_come_from_the_tokens_and_the_rest_from_the_context(name):
    layer = build(name, kv_dim=6)
    x, context = tokens(2, 3, 8), tokens(2, 7, 6)
    assert layer.k.in_features == 6
    out = layer(x, context=context)
    assert out.shape == (2, 3, 8)
    order = [2, 0, 1]
    # Float64 sums over seven keys in another order.
    assert (layer(x[:, order], context=context) - out[:, order]).abs().max() <= 1e-12
    assert (layer(x, context=context.flip(1)) - out).abs().max() <= 1e-12
    # Float64 noise is a million million times smaller.
    assert (layer(x, context=2 * context) - out).abs().max() > 1e-4
    with written_out(layer):
        assert (layer(x, context=context) - out).abs().max() <= 1e-12


def test_self_attention_is_cross_attention_to_itself():
    layer, x = build("dna"), tokens(2, 5, 8)
    assert torch.equal(layer(x), layer(x, context=x))


@pytest.mark.parametrize("kv_dim", [None, 6], ids=["self", "cross"])
@pytest.mark.parametrize("name", OPERATORS)
def test_dropout_is_off_in_eval_and_on_in_training(name, kv_dim):
    layer = build(name, attn_drop=0.5, proj_drop=0.5, kv_dim=kv_dim)
    x, context = tokens(2, 6, 8), None if kv_dim is None else tokens(2, 4, 6)
    for fused in (True, False):
        layer.fused = fused
        layer.eval()
        assert torch.equal(layer(x, context=context), layer(x, context=context))
        layer.train()
        assert not torch.equal(layer(x, context=context), layer(x, context=context))


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "written-out"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_bfloat16_model_gives_bfloat16_and_learns_alpha_in_float32(name, fused):
    layer = build(name).float().bfloat16()
    layer.fused = fused
    out = layer(tokens(2, 6, 8).bfloat16())
    out.float().sum().backward()
    assert out.dtype == torch.bfloat16
    assert layer.q.weight.dtype == torch.bfloat16
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.operator.parameters())


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "written-out"])
@pytest.mark.parametrize("name", OPERATORS)
def test_autocast_gives_half_precision_near_float32(name, fused):
    layer, x = build(name).float(), tokens(2, 6, 8).float()
    layer.fused = fused
    exact = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    assert out.dtype == torch.bfloat16
    # Bfloat16 has 8 bits: a rounding is 0.004 of the value, and the projections round twice.
    assert (out.float() - exact).abs().max() <= 2e-2 * exact.abs().max()


def test_q_norm_covers_both_query_streams_and_the_gate_follows_the_norm():
    norm = {name: torch.nn.LayerNorm(4) for name in ("q_norm", "k_norm")}
    layer = build("dna", **norm, norm=torch.nn.LayerNorm(8), gated=True)
    x = tokens(2, 5, 8)
    s = layer.project(x)
    for stream in ("q", "q_neg", "k"):
        # LayerNorm without weights: mean 0 over each head's channels.
        assert s[stream].mean(-1).abs().max() <= 1e-12
    assert s["v"].mean(-1).abs().max() > 1e-2
    expected = {}
    layer.norm.register_forward_hook(lambda module, inputs, out: expected.update(normed=out))
    out = layer(x)
    by_hand = layer.proj(expected["normed"] * layer.gate(x).sigmoid())
    assert torch.equal(out, by_hand)


def test_written_out_restores_the_path_after_an_error():
    layer = build("dna")
    with pytest.raises(ZeroDivisionError), written_out(layer):
        _ = 1 / layer.fused
    assert layer.fused


def test_new_layers_start_as_timm_does():
    layer = build_attention(AttentionSpec("dna"), dim=192, heads=3)
    for name in ("q", "q_neg", "k", "v", "v_neg", "proj"):
        weight, bias = getattr(layer, name).weight, getattr(layer, name).bias
        # The deviation of 36,864 draws is within 1 % of its mean in all but one of a million cases.
        assert weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert bias.eq(0).all()


@pytest.mark.parametrize("name", OPERATORS)
def test_a_layer_trains_written_out_with_few_tokens_and_keeps_no_map_with_more(name):
    layer = build(name).float()

    def largest(tokens_, fused=True):
        sizes, layer.fused = [], fused
        x = torch.randn(1, tokens_, 8, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            layer(x).sum()
        return max(sizes)

    few_tokens = layer.operator.small
    more = few_tokens + 1
    assert largest(few_tokens) >= 2 * few_tokens**2
    # The widest stream has 16 numbers for each token; a map would have 2 for each pair.
    assert largest(more) <= 16 * more
    assert largest(more, fused=False) >= 2 * more**2
    layer.fused = True
    few = layer.project(torch.zeros(1, 4, 8))
    assert not layer.operator.choose_path(few, layer.make_scores(few, None, None)).fused
    with torch.no_grad():
        assert layer.operator.choose_path(few, layer.make_scores(few, None, None)).fused
