"""The offset engine against the dense formula with a mask."""

import pytest
import torch
from torch.nn import functional as F

from dna_suite.attention.diagonal import Diagonals, attend_diagonals, diagonal_mask, lay_out

# Heads with and without the diagonal, one that keeps prefix tokens only, and one whose longest distance keeps a single pair.
HEADS = ((1, 2, 5), (0, 3), (), (4, 10))


def attend_dense(q, k, v, scale, kept, zero_logit):
    """The same function with the whole map."""
    logits = (scale * q @ k.transpose(-2, -1)).masked_fill(~diagonal_mask(kept, q.device), 0.0 if zero_logit else float("-inf"))
    return logits.softmax(dim=-1) @ v


def make_tensors(kept, batch=2, dtype=torch.float64, width=3, value_width=4):
    shape = batch, len(kept.distances), kept.prefix + kept.patches
    generator = torch.Generator().manual_seed(0)
    widths = (width, width, value_width)
    return [torch.randn(*shape, w, dtype=dtype, generator=generator).requires_grad_() for w in widths]


def test_the_mask_says_which_pairs_are_kept():
    mask = diagonal_mask(Diagonals(((1,), (0, 2)), 1, 3), torch.device("cpu"))
    assert mask.int().tolist() == [
        [
            [[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 1], [1, 0, 1, 0]],
            [[1, 1, 1, 1], [1, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 1]],
        ]
    ]


def test_pairs_are_counted_as_the_mask_counts_them():
    for prefix in (0, 1, 3):
        kept = Diagonals(HEADS, prefix, 11)
        assert kept.pairs == diagonal_mask(kept, torch.device("cpu")).sum()


@pytest.mark.parametrize("zero_logit", [False, True])
@pytest.mark.parametrize("prefix", [1, 2, 5])
def test_output_and_gradients_are_those_of_the_dense_formula(prefix, zero_logit):
    kept = Diagonals(HEADS, prefix, 11)
    tensors = make_tensors(kept)
    out = attend_diagonals(*tensors, 0.7, kept, zero_logit)
    wanted = attend_dense(*tensors, 0.7, kept, zero_logit)
    # float64 rounding of sums of 16 terms of size 1.
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-13)
    towards = torch.randn_like(out)
    for made, right in zip(
        torch.autograd.grad(out, tensors, towards), torch.autograd.grad(wanted, tensors, towards), strict=True
    ):
        torch.testing.assert_close(made, right, rtol=0, atol=1e-13)


def test_without_prefix_tokens():
    for zero_logit in (False, True):
        kept = Diagonals(((0, 2), (1, 3)), 0, 9)
        tensors = make_tensors(kept)
        out = attend_diagonals(*tensors, 0.7, kept, zero_logit)
        torch.testing.assert_close(out, attend_dense(*tensors, 0.7, kept, zero_logit), rtol=0, atol=1e-13)


@pytest.mark.parametrize("zero_logit", [False, True])
def test_gradcheck(zero_logit):
    kept = Diagonals(((1, 2), (0, 3), ()), 1, 5)
    tensors = make_tensors(kept, batch=1)
    assert torch.autograd.gradcheck(lambda q, k, v: attend_diagonals(q, k, v, 0.7, kept, zero_logit), tensors)


def test_large_logits_neither_overflow_nor_vanish():
    for zero_logit in (False, True):
        kept = Diagonals(HEADS, 1, 11)
        q, k, v = make_tensors(kept, dtype=torch.float32)
        out = attend_diagonals(300 * q, k, v, 0.7, kept, zero_logit)
        wanted = attend_dense((300 * q).double(), k.double(), v.double(), 0.7, kept, zero_logit)
        # Logits of size 1000 are rounded to 6e-5 in float32.
        torch.testing.assert_close(out.double(), wanted, rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype):
    kept = Diagonals(HEADS, 1, 11)
    tensors = make_tensors(kept, dtype=dtype, width=64, value_width=64)
    out = attend_diagonals(*tensors, 0.125, kept)
    wide = [t.detach().double().requires_grad_() for t in tensors]
    wanted = attend_dense(*wide, 0.125, kept, False)
    assert out.dtype == dtype
    # Half a unit in the last place of a number of size 4, as the float32 result differs from float64 by less.
    torch.testing.assert_close(out.double(), wanted, rtol=torch.finfo(dtype).eps / 2 * 1.01, atol=1e-6)
    towards = torch.randn_like(out)
    for made, right in zip(
        torch.autograd.grad(out, tensors, towards), torch.autograd.grad(wanted, wide, towards.double()), strict=True
    ):
        # The backward pass reads the result, which is rounded to eps times its size of 4.
        torch.testing.assert_close(made.double(), right, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_autocast_does_not_round_inside():
    kept = Diagonals(HEADS, 1, 11)
    tensors = make_tensors(kept, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attend_diagonals(*tensors, 0.7, kept)
    assert torch.equal(out, attend_diagonals(*tensors, 0.7, kept))


def test_split_heads_of_a_projection_and_an_empty_batch():
    kept = Diagonals(HEADS, 1, 11)
    tensors = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in make_tensors(kept)]
    assert not tensors[0].is_contiguous()
    wanted = attend_dense(*tensors, 0.7, kept, False)
    torch.testing.assert_close(attend_diagonals(*tensors, 0.7, kept), wanted, rtol=0, atol=1e-13)
    assert attend_diagonals(*(t[:0] for t in tensors), 0.7, kept).shape == (0, 4, 12, 4)


def test_layers_that_differ_in_the_order_of_their_heads_share_a_layout():
    first, second = (lay_out(Diagonals(heads, 1, 11)) for heads in (HEADS, HEADS[::-1]))
    assert first.keys is second.keys
    assert first.place.tolist() == second.place.tolist()[::-1]


def test_a_layout_made_in_inference_mode_serves_training():
    kept = Diagonals(((1, 4), (2,)), 1, 7)
    with torch.inference_mode():
        attend_diagonals(*(t.detach() for t in make_tensors(kept)), 0.7, kept)
    attend_diagonals(*make_tensors(kept), 0.7, kept).sum().backward()


@pytest.mark.parametrize("zero_logit", [False, True])
def test_what_stays_for_backward_grows_with_offsets_not_with_tokens(zero_logit):
    def count(patches):
        kept = Diagonals(((1, 2), (4, 8)), 1, patches)
        tensors = make_tensors(kept, batch=1, width=8, value_width=8)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            attend_diagonals(*tensors, 0.7, kept, zero_logit)
        return sum(sizes)

    heads, width, slots = 2, 8, 4
    for patches in (64, 256):
        tokens = patches + 1
        # q, k, v and the result; the class token's row of the map; each patch's slots, class key, and with zero_logit one number.
        assert count(patches) == heads * (4 * tokens * width + tokens + patches * (slots + 1 + zero_logit))


def test_longer_sequences_agree_with_the_masked_kernel():
    kept = Diagonals(((1, 2, 3, 5), (4, 7, 11, 18, 29, 47, 76), (6, 10, 16, 26, 42, 68)), 2, 300)
    tensors = make_tensors(kept, dtype=torch.float32, width=16, value_width=16)
    wanted = F.scaled_dot_product_attention(*tensors, attn_mask=diagonal_mask(kept, torch.device("cpu")))
    # float32 rounding of sums of 302 terms of size 1, in another order.
    torch.testing.assert_close(attend_diagonals(*tensors, 0.25, kept), wanted, rtol=0, atol=2e-6)


def test_the_number_of_threads_is_left_as_it_was():
    kept, before = Diagonals(HEADS, 1, 11), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        attend_diagonals(*make_tensors(kept), 0.7, kept).sum().backward()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
