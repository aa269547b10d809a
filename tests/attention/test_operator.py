"""Every operator against the golden numbers, in both paths, and what both paths must have in common."""

import pytest
import torch

from dna_suite.attention.reference import compute_reference
from dna_suite.attention.registry import operator_class
from dna_suite.attention.scores import Scores

from .golden_cases import ALPHA, CASES, OPERATORS, SCALE, make_bias, make_mask, make_operator, make_streams

# Float64 sums of five products, done in another order: the golden file's own tolerance.
TOLERANCE = 1e-12
PATHS = pytest.mark.parametrize("fused", [True, False], ids=["fused", "written-out"])


def close(actual, expected, tolerance=TOLERANCE):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert actual.shape == expected.shape
    assert (actual.double() - expected).abs().max() <= tolerance


def random_streams(name, tokens=6, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {s: torch.randn(2, 2, tokens, 4, generator=generator, dtype=dtype) for s in operator_class(name).streams}


@PATHS
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_golden_outputs_gradients_and_maps(case, fused):
    streams, bias, operator = make_streams(case), make_bias(case), make_operator(case["operator"])
    leaves = {**streams, **({} if bias is None else {"bias": bias})}
    if "grad" in case:
        for t in leaves.values():
            t.requires_grad_()
    scores = Scores(SCALE, bias, make_mask(case), fused=fused, mask_mode=case["options"].get("mask_mode", "neg_inf"))
    out = operator(streams, scores)
    close(out[0], case["out"])
    for branch, expected in case.get("maps", {}).items():
        close(operator.maps(streams, scores)[branch][0], expected)
    if "grad" not in case:
        return
    i = torch.arange(out.numel(), dtype=torch.float64)
    (torch.cos(0.5 * i + 0.02 * i * i) * out.flatten()).sum().backward()
    assert set(case["grad"]) == {*leaves, *dict(operator.named_parameters())}
    for name, expected in case["grad"].items():
        gradient = operator.alpha.grad if name == "alpha" else leaves[name].grad[0]
        close(gradient, expected)


@PATHS
@pytest.mark.parametrize("name", OPERATORS)
def test_reference_with_batched_mask_bias_and_empty_rows(name, fused):
    streams, operator = random_streams(name), make_operator(name)
    generator = torch.Generator().manual_seed(1)
    bias = torch.randn(2, 6, 6, generator=generator, dtype=torch.float64)
    mask = torch.rand(2, 1, 6, 6, generator=generator) < 0.5
    mask[0, 0, 2] = False
    out = operator(streams, Scores(0.7, bias, mask, fused=fused))
    alpha = ALPHA if getattr(operator, "alpha", None) is not None else None
    close(out, compute_reference(name, streams, scale=0.7, bias=bias, mask=mask, alpha=alpha))
    assert out[0, :, 2].eq(0).all()


@PATHS
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no-bias"])
def test_a_query_that_sees_nothing_gives_zeros_and_no_gradient(name, with_bias, fused):
    streams = {s: t.requires_grad_() for s, t in random_streams(name).items()}
    bias = torch.zeros(6, 6, dtype=torch.float64, requires_grad=True) if with_bias else None
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[3] = False
    out = make_operator(name)(streams, Scores(0.5, bias, mask, fused=fused))
    out.square().sum().backward()
    assert out[:, :, 3].eq(0).all()
    assert all(t.grad.isfinite().all() for t in streams.values())
    assert all(t.grad[:, :, 3].eq(0).all() for s, t in streams.items() if s.startswith("q"))
    assert bias is None or (bias.grad.isfinite().all() and bias.grad[3].eq(0).all())


@PATHS
@pytest.mark.parametrize("name", OPERATORS)
def test_blocked_keys_have_no_weight_however_large_their_logits(name, fused):
    streams, operator = random_streams(name), make_operator(name)
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[:, 4] = False
    expected = operator(streams, Scores(0.5, None, mask, fused=fused))
    for stream in ("k", "v", "v_neg"):
        if stream in streams:
            streams[stream][:, :, 4] = 1e3
    assert torch.equal(operator(streams, Scores(0.5, None, mask, fused=fused)), expected)


@PATHS
@pytest.mark.parametrize("name", OPERATORS)
def test_permuting_tokens_permutes_the_output(name, fused):
    streams, operator, order = random_streams(name), make_operator(name), torch.tensor([3, 0, 5, 1, 4, 2])
    out = operator(streams, Scores(0.5, fused=fused))
    close(operator({s: t[:, :, order] for s, t in streams.items()}, Scores(0.5, fused=fused)), out[:, :, order])


@PATHS
@pytest.mark.parametrize("name", OPERATORS)
def test_a_bias_function_is_called_once_for_each_query_stream_and_equals_its_tensor(name, fused):
    streams, operator, calls = random_streams(name), make_operator(name), []
    table = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(4, 6)

    def bias(q):
        calls.append(q)
        return q @ table

    out = operator(streams, Scores(0.5, bias, fused=fused))
    queries = [streams[s] for s in ("q", "q_neg") if s in streams]
    assert len(calls) == len(queries)
    assert all(any(torch.equal(call, q) for call in calls) for q in queries)
    reference = torch.stack([streams["q"] @ table, streams.get("q_neg", streams["q"]) @ table])
    positive, negative = (Scores(0.5, b, fused=False) for b in reference)
    maps = {
        **operator.maps(streams, positive),
        **({"negative": operator.maps(streams, negative)["negative"]} if name != "softmax" else {}),
    }
    expected = maps["positive"] @ streams["v"]
    if name != "softmax":
        alpha = 1.0 if operator.alpha is None else operator.alpha.view(-1, 1, 1)
        expected = expected + alpha * (maps["negative"] @ streams.get("v_neg", streams["v"]))
    close(out, expected)


@pytest.mark.parametrize("masked", [False, True], ids=["dense", "masked"])
@pytest.mark.parametrize("name", OPERATORS)
def test_fused_paths_keep_no_map_for_backward(name, masked):
    tokens = 64
    streams = {s: t.requires_grad_() for s, t in random_streams(name, tokens, torch.float32).items()}
    mask = torch.ones(tokens, tokens, dtype=torch.bool).tril() if masked else None

    def largest(fused):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            make_operator(name).float()(streams, Scores(0.5, None, mask, fused=fused)).sum()
        return max(sizes)

    one_map = 2 * 2 * tokens * tokens
    # The mask itself, without batch and heads but with rows for both query streams, is half a map here.
    assert largest(fused=True) <= one_map // 2
    assert largest(fused=False) >= one_map


@PATHS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OPERATORS)
def test_half_precision_stays_near_float64_and_keeps_its_type(name, dtype, fused):
    streams, operator = random_streams(name, 32, dtype), make_operator(name)
    exact = operator({s: t.double() for s, t in streams.items()}, Scores(0.5, fused=False))
    out = operator.to(dtype)(streams, Scores(0.5, fused=fused))
    assert out.dtype == dtype
    # Half an ulp of the type at each of the roundings of logits, maps, values and sum; measured 0.003 (bf16), 0.0005 (fp16).
    limit = 1.5e-2 if dtype == torch.bfloat16 else 2e-3
    assert (out.double() - exact).abs().max() <= limit * exact.abs().max()


@pytest.mark.parametrize("name", OPERATORS)
def test_dropout_keeps_the_mean_and_acts_on_the_maps_before_alpha(name):
    streams, operator = {s: t[:1] for s, t in random_streams(name).items()}, make_operator(name)
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    for fused in (True, False):
        torch.manual_seed(0)
        copies = {s: t.expand(1000, -1, -1, -1) for s, t in streams.items()}
        draws = operator(copies, Scores(0.5, None, mask, dropout=0.25, fused=fused))
        exact = operator(streams, Scores(0.5, None, mask, fused=fused))[0]
        assert draws.std(0)[:, 0].gt(0).all()
        # Five standard errors of each mean: 48 normal draws stay inside in all but one of 30,000 runs, and the seed is fixed.
        assert ((draws.mean(0) - exact).abs() <= 5 * draws.std(0) / 1000**0.5 + 1e-12).all()


def test_multiply_adds_are_those_of_the_written_out_formula():
    count = {name: make_operator(name).multiply_adds(2, 3, 5, 4) for name in OPERATORS}
    product = 2 * 3 * 5 * 4
    assert {name: number / product for name, number in count.items()} == {
        "softmax": 2,
        "dna": 4,
        "dna-q": 3,
        "dna-v": 3,
        "dna-shared": 2,
        "dna-shared-plain": 2,
    }
