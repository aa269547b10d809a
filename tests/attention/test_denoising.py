"""Denoising attention: the identities between its variants, and the type of alpha."""

import copy

import pytest
import torch

from dna_suite.attention.registry import operator_class
from dna_suite.attention.scores import Scores

from .golden_cases import make_operator

# The same float64 sums in another order.
TOLERANCE = 1e-12
SCORES = [Scores(0.5, fused=True), Scores(0.5, fused=False)]


def streams(*, tie=()):
    generator = torch.Generator().manual_seed(3)
    s = {name: torch.randn(2, 2, 6, 4, generator=generator, dtype=torch.float64) for name in ("q", "q_neg", "k", "v", "v_neg")}
    for name in tie:
        s[name] = s[name.removesuffix("_neg")]
    return s


@pytest.mark.parametrize("scores", SCORES, ids=["fused", "written-out"])
@pytest.mark.parametrize("name", ["dna", "dna-q", "dna-v", "dna-shared"])
def test_alpha_zero_is_softmax(name, scores):
    expected = make_operator("softmax")(streams(), scores)
    assert (make_operator(name, [0.0, 0.0])(streams(), scores) - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize("scores", SCORES, ids=["fused", "written-out"])
@pytest.mark.parametrize(
    ("general", "special", "tie", "alpha"),
    [
        ("dna", "dna-q", ["v_neg"], [0.5, -0.3]),
        ("dna", "dna-v", ["q_neg"], [0.5, -0.3]),
        ("dna", "dna-shared", ["q_neg", "v_neg"], [0.5, -0.3]),
        ("dna-q", "dna-shared", ["q_neg"], [0.5, -0.3]),
        ("dna-v", "dna-shared", ["v_neg"], [0.5, -0.3]),
        ("dna-shared", "dna-shared-plain", [], [1.0, 1.0]),
    ],
)
def test_tied_streams_turn_a_variant_into_the_next(general, special, tie, alpha, scores):
    s = streams(tie=tie)
    assert (make_operator(general, alpha)(s, scores) - make_operator(special, alpha)(s, scores)).abs().max() <= TOLERANCE


@pytest.mark.parametrize("name", ["dna", "dna-v"])
def test_flipping_alpha_is_flipping_the_negative_values(name):
    flipped = {**streams(), "v_neg": -streams()["v_neg"]}
    minus = make_operator(name, [-0.5, 0.3])(streams(), SCORES[0])
    assert (minus - make_operator(name, [0.5, -0.3])(flipped, SCORES[0])).abs().max() <= TOLERANCE


def test_alpha_stays_float32_in_half_precision_models_and_keeps_its_value():
    operator = make_operator("dna").float()
    with torch.no_grad():
        operator.alpha.copy_(torch.tensor([0.5001, -0.3]))
    before = operator.alpha.clone()
    for halved in (operator.bfloat16(), copy.deepcopy(operator).half(), operator.to(torch.bfloat16)):
        assert halved.alpha.dtype == torch.float32
        assert torch.equal(halved.alpha, before)
    assert operator.to("meta").alpha.is_meta
    assert make_operator("dna").double().alpha.dtype == torch.float64


def test_alpha_is_float32_whatever_the_default_type_is():
    torch.set_default_dtype(torch.bfloat16)
    try:
        alpha = operator_class("dna")(2, 4).alpha
    finally:
        torch.set_default_dtype(torch.float32)
    assert alpha.dtype == torch.float32


def test_a_small_step_of_alpha_is_not_lost_in_a_half_precision_model():
    operator = make_operator("dna", [0.5, 0.5]).float().bfloat16()
    s = {name: t.bfloat16() for name, t in streams().items()}
    operator(s, SCORES[0]).float().sum().backward()
    assert operator.alpha.grad.dtype == torch.float32
    with torch.no_grad():
        # A third of the distance between bfloat16 numbers at 0.5.
        operator.alpha -= 1e-3
    assert (operator.alpha - 0.499).abs().max() <= 1e-7
