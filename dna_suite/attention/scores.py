"""Attention scores: scale, bias, mask and dropout, and the softmax and softmin taken of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from dna_suite.attention.diagonal import Diagonals, attend_diagonals, diagonal_mask
from dna_suite.errors import DnaError

Bias = Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Scores:
    """How queries meet keys in one call of an operator.

    Softmin negates logits and bias, never the mask, which is applied afterwards. A query that may attend to nothing gives zeros.

    Args:
        scale: positive factor of q k'.
        bias: added to the scaled logits, broadcast to [batch, heads, queries, keys] (three axes are [heads, queries, keys]); or a
            function of a query stream [batch, heads, queries, head_dim], called once for each stream.
        mask: boolean, True = may attend, broadcast as the bias is.
        dropout: share of each map's entries set to zero, the rest scaled up; 0 outside training.
        fused: use scaled_dot_product_attention.
        mask_mode: a blocked pair leaves the sum, or stays in it with logit 0.
        diagonals: pairs that a pattern keeps, in the place of a mask: fused calls run over these pairs alone. Neither bias nor
            dropout goes with them.

    Raises:
        DnaError: the scale is not positive, or the mask is not boolean.
    """

    scale: float
    bias: Bias | None = None
    mask: Tensor | None = None
    dropout: float = 0.0
    fused: bool = True
    mask_mode: Literal["neg_inf", "zero_logit"] = "neg_inf"
    diagonals: Diagonals | None = None

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise DnaError(f"attention scale {self.scale}: softmin is made by negating the queries; the scale must be positive")
        if self.mask is not None and self.mask.dtype != torch.bool:
            raise DnaError(f"attention mask of {self.mask.dtype}: a boolean mask is needed (True = may attend), or a bias")

    @property
    def runs_fused(self) -> bool:
        """Whether fused calls are asked for and can express these scores."""
        return self.fused and (self.mask is None or self.mask_mode == "neg_inf")

    def bind(self, q: Tensor) -> Scores:
        """The same scores with the bias of one query stream [batch, heads, queries, head_dim] as a tensor."""
        return replace(self, bias=self._bias(q))

    def tensors(self, q: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Bias and mask of one query stream with all four axes, each of its length or 1."""
        bias = self._bias(q)
        return (None if bias is None else _give_axes(bias)), (None if self.mask is None else _give_axes(self.mask))

    def softmax(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """s(Q K') V in one fused call: [batch, heads, queries, value_dim]."""
        if self.diagonals is not None:
            return attend_diagonals(q, k, v, self.scale, self.diagonals, self.mask_mode == "zero_logit")
        return self._call(q, k, v, self._additive(self._bias(q), q))

    def softmin(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """s^(Q K') V in one fused call, as s((-Q) K') V with the bias negated: [batch, heads, queries, value_dim]."""
        if self.diagonals is not None:
            return Scores.softmax(self, -q, k, v)
        bias = self._bias(q)
        return self._call(-q, k, v, self._additive(None if bias is None else -bias, q))

    def both(self, q: Tensor, q_neg: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """s(Q+ K') V and s^(Q- K') V in one fused call with the queries [Q+ ; -Q-] stacked over tokens; in two over diagonals."""
        if self.diagonals is not None:
            return Scores.softmax(self, q, k, v), Scores.softmin(self, q_neg, k, v)
        bias, bias_neg = self._bias(q), self._bias(q_neg)
        queries = q.shape[-2]
        positive = self._additive(bias, q)
        negative = self._additive(None if bias_neg is None else -bias_neg, q)
        stacked = None
        if positive is not None and negative is not None:
            stacked = torch.cat((_give_rows(positive, queries), _give_rows(negative, queries)), dim=-2)
        out = self._call(torch.cat((q, -q_neg), dim=-2), k, v, stacked)
        return out[..., :queries, :], out[..., queries:, :]

    def logits(self, q: Tensor, k: Tensor) -> Tensor:
        """scale Q K' + bias, before the mask, at least float32: [batch, heads, queries, keys]."""
        product = self.scale * (q @ k.transpose(-2, -1))
        if product.dtype in (torch.float16, torch.bfloat16):
            product = product.float()
        bias = self._bias(q)
        return product if bias is None else product + bias

    def softmax_map(self, logits: Tensor) -> Tensor:
        """s(logits) under the mask, without dropout: [batch, heads, queries, keys]."""
        mask = self.mask if self.diagonals is None else diagonal_mask(self.diagonals, logits.device)
        if mask is None:
            return logits.softmax(dim=-1)
        blocked = ~mask
        if self.mask_mode == "zero_logit":
            return logits.masked_fill(blocked, 0.0).softmax(dim=-1)
        # The lowest number instead of -inf: a row of -inf is NaN, and its gradient stays NaN whatever is written over it.
        weights = logits.masked_fill(blocked, torch.finfo(logits.dtype).min).softmax(dim=-1)
        return weights.masked_fill(blocked, 0.0)

    def softmin_map(self, logits: Tensor) -> Tensor:
        """s^(logits) = s(-logits) under the same mask, without dropout: [batch, heads, queries, keys]."""
        return self.softmax_map(-logits)

    def drop(self, weights: Tensor) -> Tensor:
        """The map after dropout."""
        return F.dropout(weights, self.dropout) if self.dropout > 0 else weights

    def weigh(self, weights: Tensor, v: Tensor) -> Tensor:
        """The map after dropout, times the values: [batch, heads, queries, value_dim]."""
        return self.drop(weights).to(v.dtype) @ v

    def _bias(self, q: Tensor) -> Tensor | None:
        return self.bias(q) if callable(self.bias) and not isinstance(self.bias, Tensor) else self.bias

    def _additive(self, bias: Tensor | None, q: Tensor) -> Tensor | None:
        """What a fused call takes as its mask: the bias with -inf where the mask blocks, or the mask alone."""
        mask = None if self.mask is None else _give_batch(self.mask)
        if bias is None:
            return mask
        bias = _give_batch(bias).to(q.dtype)
        return bias if mask is None else torch.where(mask, bias, float("-inf"))

    def _call(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self.dropout, scale=self.scale)


def split_mask(attn_mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """A host's attention mask as bias and boolean mask, so that softmin can negate the one and not the other.

    Args:
        attn_mask: boolean (True = may attend), or additive with -inf or the lowest number of its type where attention is blocked.

    Returns:
        The bias, 0 at blocked pairs, and the mask; None for what is not there.
    """
    if attn_mask is None or attn_mask.dtype == torch.bool:
        return None, attn_mask
    # Half of the lowest number: a bias added to a mask of that number moves it a little.
    mask = attn_mask > torch.finfo(attn_mask.dtype).min / 2
    return attn_mask.masked_fill(~mask, 0.0), mask


def _give_batch(t: Tensor) -> Tensor:
    """[heads, queries, keys] with a batch axis: the fused kernels fall back to the slow one without it."""
    return t.unsqueeze(0) if t.dim() == 3 else t


def _give_axes(t: Tensor) -> Tensor:
    return t[(None,) * (4 - t.dim())]


def _give_rows(t: Tensor, queries: int) -> Tensor:
    return t.expand(*t.shape[:-2], queries, t.shape[-1])
