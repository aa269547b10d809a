"""Warm starts: what is copied, what is scaled, and what stays."""

import pytest
import torch

from dna_suite.attention.registry import build_attention
from dna_suite.attention.warm_start import warm_start
from dna_suite.catalogue import OPERATORS
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec

WIDER = {
    "softmax-wide": r"SoftmaxWide: q.weight is \[8, 8\], \[12, 8\] here",
    "softmax-value": r"SoftmaxValue: v.weight is \[8, 8\], \[16, 8\] here",
}


def build(name, seed):
    torch.manual_seed(seed)
    return build_attention(AttentionSpec(name), dim=8, heads=2, layer=2, depth=4)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in WIDER])
def test_softmax_weights_complete_any_operator_of_its_width(name):
    source, target = build("softmax", 0).state_dict(), build(name, 1)
    state, changes = warm_start(target, source, factor=0.25)
    target.load_state_dict(state)
    for key, tensor in source.items():
        assert torch.equal(target.state_dict()[key], tensor)
    for stream in set(target.streams) - {"q", "k", "v"}:
        positive = source[f"{stream.removesuffix('_neg')}.weight"]
        assert torch.equal(target.state_dict()[f"{stream}.weight"], 0.25 * positive)
    assert {change.tensor for change in changes} == set(target.state_dict()) - set(source)


@pytest.mark.parametrize("name", WIDER)
def test_weights_of_another_width_are_refused(name):
    with pytest.raises(DnaError, match=rf"warm start of {WIDER[name]}: the widths must be equal"):
        warm_start(build(name, 1), build("softmax", 0).state_dict())
    own = build(name, 0).state_dict()
    state, changes = warm_start(build(name, 1), own)
    assert changes == []
    assert all(torch.equal(state[key], tensor) for key, tensor in own.items())


def test_a_differential_layer_starts_with_the_projections_and_lambda_of_its_layer():
    source, target = build("softmax", 0), build("differential", 1)
    before = target.operator.compute_lambda().item()
    state, changes = warm_start(target, source.state_dict())
    target.load_state_dict(state)
    assert {str(change).split(" (")[0] for change in changes} == {
        f"start value: operator.{name}" for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2", "sub_norm.weight")
    }
    assert target.operator.compute_lambda().item() == before


def test_the_report_says_where_each_tensor_came_from():
    _, changes = warm_start(build("dna", 1), build("softmax", 0).state_dict())
    assert [str(change) for change in changes] == [
        "warm start: q_neg.weight (0.0001 x q.weight)",
        "warm start: q_neg.bias (0.0001 x q.bias)",
        "warm start: v_neg.weight (0.0001 x v.weight)",
        "warm start: v_neg.bias (0.0001 x v.bias)",
        "start value: operator.alpha (the operator's own)",
    ]


def test_a_warm_started_dna_layer_is_near_the_softmax_layer():
    source, target, x = build("softmax", 0), build("dna", 1), torch.randn(2, 6, 8)
    target.load_state_dict(warm_start(target, source.state_dict())[0])
    # The negative branch adds half of 1e-4 times values of the same size.
    assert (target(x) - source(x)).abs().max() <= 1e-4 * source(x).abs().max()
    assert not torch.equal(target(x), source(x))


@pytest.mark.parametrize("name", ["dna-q", "dna-v", "dna-shared"])
def test_a_variant_that_shares_a_stream_becomes_dna_without_a_change_of_function(name):
    source, target, x = build(name, 0), build("dna", 1), torch.randn(2, 6, 8)
    target.load_state_dict(warm_start(target, source.state_dict())[0])
    # The same float32 sums in another order.
    assert (target(x) - source(x)).abs().max() <= 1e-6 * source(x).abs().max()


def test_packed_weights_are_split_first():
    source = build("softmax", 0).state_dict()
    packed = {f"qkv.{kind}": torch.cat([source.pop(f"{name}.{kind}") for name in "qkv"]) for kind in ("weight", "bias")}
    state, changes = warm_start(build("dna-q", 1), {**source, **packed})
    assert torch.equal(state["k.weight"], packed["qkv.weight"][8:16])
    assert {change.tensor for change in changes} == {"q_neg.weight", "q_neg.bias", "operator.alpha"}
