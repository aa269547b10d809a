"""Scores: what they refuse, and a host's mask taken apart."""

import pytest
import torch

from dna_suite.attention.scores import Scores, split_mask
from dna_suite.errors import DnaError


@pytest.mark.parametrize("scale", [-0.5, 0.0, float("nan")])
def test_a_scale_that_is_not_positive_is_refused(scale):
    with pytest.raises(DnaError, match="scale must be positive"):
        Scores(scale)


def test_an_additive_mask_is_refused():
    with pytest.raises(DnaError, match="boolean mask is needed"):
        Scores(0.5, mask=torch.zeros(3, 3))


def test_softmin_is_softmax_of_the_negated_logits_under_the_same_mask():
    logits, mask = torch.tensor([[0.0, 1.0, 7.0]]), torch.tensor([[True, True, False]])
    e = torch.e
    scores = Scores(1.0, mask=mask)
    # Two float32 terms: within one rounding of the exact quotient.
    assert (scores.softmax_map(logits) - torch.tensor([[1 / (1 + e), e / (1 + e), 0.0]])).abs().max() <= 1e-7
    assert (scores.softmin_map(logits) - torch.tensor([[e / (1 + e), 1 / (1 + e), 0.0]])).abs().max() <= 1e-7


def test_a_three_axis_mask_means_heads_and_gets_a_batch_axis():
    q = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.ones(3, 4, 4, dtype=torch.bool).tril()
    mask[1] = True
    out = Scores(0.5, mask=mask).softmax(q, q, q)
    alone = Scores(0.5, mask=mask[0]).softmax(q[:, :1], q[:, :1], q[:, :1])
    assert torch.equal(out[:, :1], alone)
    assert torch.equal(out[:, 1:2], Scores(0.5).softmax(q[:, 1:2], q[:, 1:2], q[:, 1:2]))


def test_split_mask_separates_bias_and_mask():
    assert split_mask(None) == (None, None)
    boolean = torch.tensor([True, False])
    assert split_mask(boolean)[0] is None
    assert split_mask(boolean)[1] is boolean
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        additive = torch.tensor([0.25, float("-inf"), torch.finfo(dtype).min, -100.0], dtype=dtype)
        bias, mask = split_mask(additive)
        assert bias.tolist() == [0.25, 0.0, 0.0, -100.0]
        assert mask.tolist() == [True, False, False, True]
