"""Differential attention: equal to timm's, its lambda, and its forms."""

import copy

import pytest
import torch
from timm.layers import DiffAttention
from torch.nn.attention import SDPBackend, sdpa_kernel

from dna_suite.attention.differential import start_lambda
from dna_suite.attention.registry import build_attention
from dna_suite.attention.scores import Scores
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec

from .golden_cases import make_operator


def build(layer=2, options=None, **settings):
    torch.manual_seed(0)
    spec = AttentionSpec("differential", options=options or {})
    return build_attention(spec, **{"dim": 48, "heads": 3, "layer": layer, "depth": 12, **settings})


def timm_layer(layer, **settings):
    torch.manual_seed(1)
    host = DiffAttention(48, num_heads=3, qkv_bias=True, depth=layer, **settings)
    with torch.no_grad():
        host.sub_norm.weight.add_(0.1 * torch.randn(16))
    return host


def tokens(dtype=torch.float64):
    return torch.randn(2, 9, 48, generator=torch.Generator().manual_seed(5), dtype=dtype)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "written-out"])
@pytest.mark.parametrize("layer", [0, 5, 11])
def test_timm_weights_load_strictly_and_give_timm_s_output_and_gradients(layer, fused, monkeypatch):
    host, ours = timm_layer(layer).double(), build(layer).double()
    ours.load_state_dict(host.state_dict())
    ours.fused = fused
    x = tokens()
    # timm computes lambda in float32, seven digits, and the norm enlarges the difference where the two maps nearly cancel.
    assert (ours.operator.compute_lambda() - host._compute_lambda()).abs() <= 1e-7
    assert (ours(x) - host(x)).abs().max() <= 1e-6
    monkeypatch.setattr(host, "_compute_lambda", lambda: ours.operator.compute_lambda().detach().squeeze())
    # With the same lambda: float64 sums in another order.
    assert (ours(x) - host(x)).abs().max() <= 1e-12
    monkeypatch.undo()
    host(x).square().sum().backward()
    ours(x).square().sum().backward()
    for name in ("lambda_q1", "lambda_k2", "sub_norm.weight"):
        found, expected = ours.operator.get_parameter(name).grad, host.get_parameter(name).grad
        assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()
    assert (ours.q.weight.grad - host.qkv.weight.grad[:48]).abs().max() <= 1e-6


def test_masks_are_timm_s():
    host, ours = timm_layer(3).double(), build(3).double()
    ours.load_state_dict(host.state_dict())
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    # As above: timm's lambda has seven digits.
    assert (ours(tokens(), mask=mask) - host(tokens(), attn_mask=mask)).abs().max() <= 1e-6


def test_the_start_follows_the_layer_and_no_layer_is_not_the_first():
    # 0.8 - 0.6, and 0.8 - 0.6 / e.
    assert start_lambda(0) == pytest.approx(0.2, abs=1e-15)
    assert start_lambda(10) == pytest.approx(0.8 - 0.6 * 0.049787068367863944, abs=1e-15)
    assert build(7).operator.lambda_init == start_lambda(7)
    with pytest.raises(DnaError, match="'differential' depends on its place in the model"):
        build(None)


def test_plain_learns_one_number_that_starts_at_the_same_value():
    layer = build(4, {"plain": True})
    assert [name for name, _ in layer.operator.named_parameters()] == ["lambda_plain"]
    assert layer.operator.lambda_plain.item() == pytest.approx(start_lambda(4), abs=1e-7)
    assert layer.operator.lambda_plain.shape == ()


def test_a_head_that_has_no_halves_is_refused():
    with pytest.raises(DnaError, match=r"head width 5 .* must be a multiple of 2"):
        build(dim=15)


def test_lambda_stays_float32_in_a_half_precision_model():
    operator = make_operator("differential").float()
    exact = operator.compute_lambda()
    for dtype in (torch.bfloat16, torch.float16):
        halved = copy.deepcopy(operator).to(dtype)
        assert {parameter.dtype for parameter in halved.parameters()} == {torch.float32}
        # bfloat16 vectors would give 2 % less.
        assert torch.equal(halved.compute_lambda(), exact)


@pytest.mark.parametrize("name", ["differential", "differential-plain"])
def test_the_fused_form_stays_off_the_slow_kernel(name):
    generator = torch.Generator().manual_seed(2)
    s = {key: torch.randn(2, 2, 7, 4, generator=generator, dtype=torch.float64).requires_grad_() for key in "qkv"}
    operator, mask = make_operator(name), torch.ones(7, 7, dtype=torch.bool).tril()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        found = operator(s, Scores(0.7, mask=mask))
    expected = operator(s, Scores(0.7, mask=mask, fused=False))
    # Float64 sums of seven products in another order.
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    leaves = [*s.values(), *operator.parameters()]
    wanted = torch.autograd.grad(expected.square().sum(), leaves)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), leaves), wanted, rtol=0, atol=1e-11)


def test_without_the_norm_and_with_lambda_zero_it_is_softmax_of_half_the_channels():
    s = {key: t.double() for key, t in zip("qkv", torch.randn(3, 2, 2, 7, 4), strict=True)}
    operator = make_operator("differential-plain")
    torch.nn.init.zeros_(operator.lambda_plain)
    halves = {"q": s["q"][..., :2], "k": s["k"][..., :2], "v": s["v"]}
    expected = make_operator("softmax")(halves, Scores(0.7, fused=False))
    assert (operator(s, Scores(0.7)) - expected).abs().max() <= 1e-12
