"""Every operator against the golden numbers, in both paths, and what both paths must have in common."""

import pytest
import torch

from dna_suite.attention.reference import compute_reference
from dna_suite.attention.scores import Scores

from .golden_cases import (
    CASES,
    DENOISING,
    OPERATORS,
    find_class,
    find_scale,
    make_bias,
    make_mask,
    make_operator,
    make_streams,
    split_name,
)

# Float64 sums of five products, done in another order: the golden file's own tolerance.
TOLERANCE = 1e-12
PATHS = pytest.mark.parametrize("fused", [True, False], ids=["fused", "written-out"])


def close(actual, expected, tolerance=TOLERANCE):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert actual.shape == expected.shape
    assert (actual.double() - expected).abs().max() <= tolerance


def random_streams(name, tokens=6, dtype=torch.float64, seed=0):
    generator, kind = torch.Generator().manual_seed(seed), find_class(name)
    widths = {s: kind.widths(4)[s.startswith("v")] for s in kind.streams}
    return {s: torch.randn(2, 2, tokens, width, generator=generator, dtype=dtype) for s, width in widths.items()}


@PATHS
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_golden_outputs_gradients_and_maps(case, fused):
    streams, bias, operator = make_streams(case), make_bias(case), make_operator(case["operator"])
    leaves = {**streams, **({} if bias is None else {"bias": bias})}
    if "grad" in case:
        for t in leaves.values():
            t.requires_grad_()
    scores = Scores(
        find_scale(case["operator"]), bias, make_mask(case), fused=fused, mask_mode=case["options"].get("mask_mode", "neg_inf")
    )
    out = operator(streams, scores)
    close(out[0], case["out"])
    for branch, expected in case.get("maps", {}).items():
        close(operator.maps(streams, scores)[branch][0], expected)
    if "grad" not in case:
        return
    i = torch.arange(out.numel(), dtype=torch.float64)
    (torch.cos(0.5 * i + 0.02 * i * i) * out.flatten()).sum().backward()
    found = {name: t.grad[0] for name, t in leaves.items()} | {name: p.grad for name, p in operator.named_parameters()}
    if "sub_norm.weight" in found:
        found["sub_norm"] = found.pop("sub_norm.weight")
        found["lambda"] = torch.stack([found.pop(f"lambda_{vector}") for vector in ("q1", "k1", "q2", "k2")])
    assert set(case["grad"]) == set(found)
    for name, expected in case["grad"].items():
        close(found[name], expected)


@PATHS
@pytest.mark.parametrize("name", OPERATORS)
def test_reference_with_batched_mask_bias_and_empty_rows(name, fused):
    streams, operator = random_streams(name), make_operator(name)
    generator = torch.Generator().manual_seed(1)
    bias = torch.randn(2, 6, 6, generator=generator, dtype=torch.float64)
    mask = torch.rand(2, 1, 6, 6, generator=generator) < 0.5
    mask[0, 0, 2] = False
    out = operator(streams, Scores(0.7, bias, mask, fused=fused))
    close(out, compute_reference(split_name(name)[0], streams, scale=0.7, bias=bias, mask=mask, **operator.constants()))
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
    table = torch.linspace(-1, 1, streams["q"].shape[-1] * 6, dtype=torch.float64).reshape(-1, 6)

    def bias(q):
        calls.append(q)
        return q @ table

    out = operator(streams, Scores(0.5, bias, fused=fused))
    queries = [streams[s] for s in ("q", "q_neg") if s in streams]
    assert len(calls) == len(queries)
    assert all(any(torch.equal(call, q) for call in calls) for q in queries)
    if name not in DENOISING:
        close(out, operator(streams, Scores(0.5, streams["q"] @ table, fused=False)))
        return
    positive, negative = (Scores(0.5, streams.get(q, streams["q"]) @ table, fused=False) for q in ("q", "q_neg"))
    maps = operator.maps(streams, positive)["positive"], operator.maps(streams, negative)["negative"]
    alpha = 1.0 if operator.alpha is None else operator.alpha.view(-1, 1, 1)
    close(out, maps[0] @ streams["v"] + alpha * (maps[1] @ streams.get("v_neg", streams["v"])))


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
    # The norm divides the difference of two rounded outputs by its own, smaller, size.
    limit *= 2 if name == "differential" else 1
    assert (out.double() - exact).abs().max() <= limit * exact.abs().max()


# The norm of differential attention is not linear in the maps; its plain form stands for both.
@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "differential"])
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
        "softmax-wide": 2,
        "softmax-value": 3,
        "dna": 4,
        "dna-q": 3,
        "dna-v": 3,
        "dna-shared": 2,
        "dna-shared-plain": 2,
        "differential": 2,
        "differential-plain": 2,
        "cog": 2,
    }
