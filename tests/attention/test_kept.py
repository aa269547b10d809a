"""What is kept for the backward pass, in bytes and by the largest tensor."""

import pytest
import torch
from torch.nn import functional as F

from dna_suite.attention.kept import count_kept
from dna_suite.attention.registry import build_attention
from dna_suite.attention.scores import Scores
from dna_suite.catalogue import OUR_OPERATORS
from dna_suite.spec import AttentionSpec


def test_each_storage_counts_once_and_whole():
    x = torch.randn(4, 6, requires_grad=True)
    # A product saves both factors: here x twice.
    assert count_kept(lambda: x * x).bytes == 4 * 6 * 4
    # A view of a row keeps the whole tensor.
    assert count_kept(lambda: x[0] * x[1]).bytes == 4 * 6 * 4
    assert count_kept(lambda: x * x, without=[x]).bytes == 0
    # The exponential saves its result.
    assert count_kept(lambda: x.exp() * x).bytes == 2 * 4 * 6 * 4
    with torch.no_grad():
        assert count_kept(lambda: x * x).bytes == 0


def test_a_map_is_seen_by_its_size():
    q, k, v = (torch.randn(1, 2, 40, 8, requires_grad=True) for _ in range(3))
    assert count_kept(lambda: (q @ k.mT).softmax(dim=-1) @ v).largest == 2 * 40 * 40
    fused = count_kept(lambda: F.scaled_dot_product_attention(q, k, v))
    assert fused.largest == 2 * 40 * 8
    # q, k, v, the output, and one logarithm of a sum for each query.
    assert fused.bytes == 4 * 2 * 40 * 8 * 4 + 2 * 40 * 4


def test_a_custom_function_is_counted():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, torch.zeros(3, 50, 50))
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return 2 * ctx.saved_tensors[0] * gradient

    x = torch.randn(5, requires_grad=True)
    kept = count_kept(lambda: Square.apply(x))
    assert kept.bytes == 5 * 4 + 3 * 50 * 50 * 4
    assert kept.largest == 3 * 50 * 50


@pytest.mark.parametrize("name", OUR_OPERATORS)
@pytest.mark.parametrize("condition", ["always", "mask", "dropout", "learned bias"])
def test_fused_paths_keep_maps_when_the_catalogue_says_so(name, condition):
    batch, heads, tokens = 3, 2, 100
    layer = build_attention(AttentionSpec(name), dim=16, heads=heads, layer=1, depth=2)
    s = {stream: t.detach().requires_grad_() for stream, t in layer.project(torch.randn(batch, tokens, 16)).items()}
    bias = torch.randn(1, heads, tokens, tokens, requires_grad=True) if condition == "learned bias" else None
    mask = torch.rand(tokens, tokens) > 0.3 if condition == "mask" else None
    scores = Scores(layer.scale, bias=bias, mask=mask, dropout=0.1 if condition == "dropout" else 0.0)
    kept = count_kept(lambda: layer.operator(s, scores))
    cost = OUR_OPERATORS[name].cost
    listed = "always" in cost.keeps_map or condition in cost.keeps_map
    # One map of every sample and head; a bias or a mask without the samples' axis is a third of it.
    assert (kept.largest >= batch * heads * tokens**2) == listed
