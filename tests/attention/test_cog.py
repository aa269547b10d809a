"""Cog attention: its signs, and what turns it into softmax."""

import pytest
import torch

from dna_suite.attention.cog import Cog
from dna_suite.attention.scores import Scores

PATHS = pytest.mark.parametrize("fused", [True, False], ids=["fused", "written-out"])


def streams(seed=3):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(2, 2, 6, 4, generator=generator, dtype=torch.float64) for name in "qkv"}


@PATHS
def test_negating_the_queries_negates_the_output(fused):
    s, scores = streams(), Scores(0.5, fused=fused)
    operator = Cog(2, 4)
    assert (operator({**s, "q": -s["q"]}, scores) + operator(s, scores)).abs().max() <= 1e-15


@PATHS
def test_with_positive_logits_it_is_softmax(fused):
    s = {name: t.abs() if name != "v" else t for name, t in streams().items()}
    expected = (0.5 * s["q"] @ s["k"].mT).softmax(-1) @ s["v"]
    # Float64 sums of six products in another order.
    assert (Cog(2, 4)(s, Scores(0.5, fused=fused)) - expected).abs().max() <= 1e-14


def test_the_maps_part_the_keys_by_sign_and_their_sum_has_rows_of_one():
    s, scores = streams(), Scores(0.5)
    maps = Cog(2, 4).maps(s, scores)
    logits = scores.logits(s["q"], s["k"])
    assert torch.equal(maps["positive"] > 0, logits > 0)
    assert torch.equal(maps["negative"] > 0, logits < 0)
    assert ((maps["positive"] + maps["negative"]).sum(-1) - 1).abs().max() <= 1e-14
    assert (Cog(2, 4)(s, scores) - (maps["positive"] - maps["negative"]) @ s["v"]).abs().max() <= 1e-14


@PATHS
def test_a_blocked_pair_with_logit_zero_stays_in_the_sum_without_weight(fused):
    s = streams()
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[:, 4] = False
    logits = (0.5 * s["q"] @ s["k"].mT).masked_fill(~mask, 0.0)
    expected = (logits.sign() * logits.abs().softmax(-1)) @ s["v"]
    found = Cog(2, 4)(s, Scores(0.5, None, mask, fused=fused, mask_mode="zero_logit"))
    assert (found - expected).abs().max() <= 1e-14


def test_dropout_runs_written_out_and_keeps_the_mean():
    s = {name: t[:1].expand(2000, -1, -1, -1) for name, t in streams().items()}
    torch.manual_seed(0)
    draws, exact = Cog(2, 4)(s, Scores(0.5, dropout=0.25)), Cog(2, 4)(s, Scores(0.5))[0]
    # Five standard errors of each mean; the seed is fixed.
    assert ((draws.mean(0) - exact).abs() <= 5 * draws.std(0) / 2000**0.5).all()
