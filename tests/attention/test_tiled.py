"""Attention in tiles: equal to the maps in memory, with any tile size, and nothing of N x N kept."""

import pytest
import torch

from dna_suite.attention import tiled
from dna_suite.attention.scores import Scores
from dna_suite.attention.tile_maps import CogMap, SharedMap, SoftmaxMap
from dna_suite.attention.tiled import can_tile, mix_tiled
from dna_suite.errors import DnaError

MAPS = {
    "softmax": SoftmaxMap(),
    "cog": CogMap(),
    "shared": SharedMap(),
    "shared-plain": SharedMap(),
}


def make_tensors(name, dtype=torch.float64, queries=7, keys=5):
    generator = torch.Generator().manual_seed(4)
    shapes = {"q": (2, 3, queries, 4), "k": (2, 3, keys, 4), "v": (2, 3, keys, 6), "bias": (3, 1, keys)}
    made = {key: torch.randn(shape, generator=generator).to(dtype).requires_grad_() for key, shape in shapes.items()}
    made["mask"] = torch.rand(2, 1, queries, keys, generator=generator) < 0.7
    made["mask"][1, 0, 2] = False
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    weighted = name == "shared"
    made["alpha"] = torch.tensor([0.5, -0.3, 1.2], dtype=wide, requires_grad=True) if weighted else None
    return made


def write_out(name, q, k, v, scores, alpha):
    """The same attention with its maps in memory."""
    logits = scores.logits(q, k)
    if name == "cog":
        return (logits.sign() * scores.softmax_map(logits.abs())) @ v
    if name == "softmax":
        return scores.softmax_map(logits) @ v
    weight = 1 if alpha is None else alpha.view(-1, 1, 1)
    return (scores.softmax_map(logits) + weight * scores.softmin_map(logits)) @ v


# All of it in one tile; two heads at a time; one head and two rows at a time.
@pytest.mark.parametrize("elements", [2**18, 70, 10])
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("name", MAPS)
def test_outputs_and_gradients_are_those_of_the_maps_in_memory(name, with_bias, elements, monkeypatch):
    monkeypatch.setattr(tiled, "CPU_TILE", elements)
    made = make_tensors(name)
    q, k, v, alpha = (made[key] for key in ("q", "k", "v", "alpha"))
    bias, mask = (made["bias"], made["mask"]) if with_bias else (None, None)
    scores = Scores(0.7, bias, mask)
    leaves = [t for t in (q, k, v, alpha, bias) if t is not None]
    out, expected = mix_tiled(MAPS[name], q, k, v, scores, alpha), write_out(name, q, k, v, scores, alpha)
    # Float64 sums of seven products in another order.
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-13)
    towards = torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=out.dtype)
    found, wanted = torch.autograd.grad(out, leaves, towards), torch.autograd.grad(expected, leaves, towards)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", MAPS)
def test_gradients_are_those_of_small_differences(name):
    made = make_tensors(name, queries=3, keys=4)
    tensors = [made[key] for key in ("q", "k", "v", "bias", "alpha")]

    def mix(q, k, v, bias, alpha):
        return mix_tiled(MAPS[name], q, k, v, Scores(0.7, bias, made["mask"]), alpha)

    assert torch.autograd.gradcheck(mix, tensors, fast_mode=True)


def test_a_logit_of_zero_has_no_weight_in_cog_and_stays_in_the_sum():
    q, k = torch.tensor([[[[1.0]]]]).double(), torch.tensor([[[[0.0], [2.0]]]]).double()
    v = torch.tensor([[[[5.0], [1.0]]]]).double()
    weight = torch.tensor(2.0).double().exp() / (1 + torch.tensor(2.0).double().exp())
    assert (mix_tiled(CogMap(), q, k, v, Scores(1.0)) - weight).abs().max() <= 1e-15


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MAPS)
def test_half_precision_streams_are_computed_in_float32_and_rounded_once(name, dtype):
    made = make_tensors(name, dtype, 32, 32)
    streams = [made[key] for key in ("q", "k", "v")]
    exact = [t.detach().double().requires_grad_() for t in streams]
    alpha = made["alpha"]
    with torch.autocast("cpu", torch.bfloat16):
        out = mix_tiled(MAPS[name], *streams, Scores(0.7), alpha)
    expected = write_out(name, *exact, Scores(0.7), None if alpha is None else alpha.double())
    assert out.dtype == dtype
    # One rounding: half of the distance between neighbouring numbers, 2**-8 (bfloat16) or 2**-11 of the largest number.
    limit = 4e-3 if dtype == torch.bfloat16 else 5e-4
    assert (out.double() - expected).abs().max() <= limit * expected.abs().max()
    towards = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    found, wanted = torch.autograd.grad(out, streams, towards), torch.autograd.grad(expected, exact, towards.double())
    for gradient, right in zip(found, wanted, strict=True):
        assert (gradient.double() - right).abs().max() <= limit * right.abs().max()


@pytest.mark.parametrize("name", MAPS)
def test_only_the_streams_the_result_and_its_row_sums_are_kept(name):
    made, sizes = make_tensors(name, torch.float32, 300, 300), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        mix_tiled(MAPS[name], made["q"], made["k"], made["v"], Scores(0.7), made["alpha"])
    streams, row_sums = 4 + 4 + 6 + 6, MAPS[name].maps
    assert sum(sizes) == 2 * 3 * 300 * (streams + row_sums) + (3 if made["alpha"] is not None else 0)


def test_a_second_derivative_is_refused_instead_of_wrong():
    made = make_tensors("cog")
    out = mix_tiled(CogMap(), made["q"], made["k"], made["v"], Scores(0.7))
    with pytest.raises(DnaError, match="no second derivative"):
        torch.autograd.grad(out.sum(), made["q"], create_graph=True)


def test_dropout_shapes_and_exports_are_for_the_maps_in_memory():
    q = torch.zeros(1, 1, 2, 2)
    assert can_tile(q, Scores(1.0))
    assert not can_tile(q, Scores(1.0, dropout=0.1))
    assert not can_tile(q.to("meta"), Scores(1.0))

    class HostScores(Scores):
        pass

    assert not can_tile(q, HostScores(1.0))
