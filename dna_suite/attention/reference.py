"""The operators in plain float64 loops, straight from the formulas: what the fast paths are checked against."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dna_suite.errors import UnknownName

Matrix = list[list[float]]

_BRANCHES = {
    "softmax": (("q", "v"), None),
    "dna": (("q", "v"), ("q_neg", "v_neg")),
    "dna-q": (("q", "v"), ("q_neg", "v")),
    "dna-v": (("q", "v"), ("q", "v_neg")),
    "dna-shared": (("q", "v"), ("q", "v")),
    "dna-shared-plain": (("q", "v"), ("q", "v")),
}


def compute_reference(
    name: str,
    s: Mapping[str, Tensor],
    *,
    scale: float,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    alpha: Sequence[float] | None = None,
    zero_logit: bool = False,
) -> Tensor:
    """The output of an operator, computed number by number.

    Args:
        name: operator.
        s: its streams, [batch, heads, tokens, head_dim] each.
        scale: factor of q k'.
        bias: broadcast to [batch, heads, queries, keys].
        mask: boolean, True = may attend, broadcast likewise.
        alpha: weight of the negative branch for each head; 1 if None.
        zero_logit: a blocked pair stays in the sum with logit 0 instead of leaving it.

    Returns:
        float64, [batch, heads, queries, value_dim].

    Raises:
        UnknownName: the reference does not know the operator.
    """
    if name not in _BRANCHES:
        raise UnknownName("attention", name, _BRANCHES)
    batch, heads, queries = s["q"].shape[:3]
    shape = (batch, heads, queries, s["k"].shape[2])
    biases = torch.zeros(shape, dtype=torch.float64) if bias is None else bias.double().expand(shape)
    masks = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    out = []
    for b in range(batch):
        for h in range(heads):
            head = {stream: t[b, h].tolist() for stream, t in s.items()}
            weight = 1.0 if alpha is None else alpha[h]
            out.append(_mix(name, head, scale, biases[b, h].tolist(), masks[b, h].tolist(), weight, zero_logit))
    return torch.tensor(out, dtype=torch.float64).unflatten(0, (batch, heads))


def _mix(
    name: str, s: dict[str, Matrix], scale: float, bias: Matrix, mask: list[list[bool]], alpha: float, zero_logit: bool
) -> Matrix:
    (q, v), negative = _BRANCHES[name]
    rows = []
    for i in range(len(s[q])):
        row = _average(_weigh(_logits(s[q][i], s["k"], scale, bias[i]), mask[i], +1, zero_logit), s[v])
        if negative is not None:
            q_neg, v_neg = negative
            weights = _weigh(_logits(s[q_neg][i], s["k"], scale, bias[i]), mask[i], -1, zero_logit)
            row = [p + alpha * n for p, n in zip(row, _average(weights, s[v_neg]), strict=True)]
        rows.append(row)
    return rows


def _logits(q: list[float], k: Matrix, scale: float, bias: list[float]) -> list[float]:
    return [scale * math.fsum(a * b for a, b in zip(q, key, strict=True)) + bias[j] for j, key in enumerate(k)]


def _weigh(logits: list[float], mask: list[bool], sign: int, zero_logit: bool) -> list[float]:
    """Softmax (sign 1) or softmin (sign -1) over the keys that may be attended to; zeros where there is none."""
    signed = [sign * x for x in logits]
    if zero_logit:
        signed = [x if may else 0.0 for x, may in zip(signed, mask, strict=True)]
        mask = [True] * len(mask)
    allowed = [x for x, may in zip(signed, mask, strict=True) if may]
    if not allowed:
        return [0.0] * len(logits)
    top = max(allowed)
    powers = [math.exp(x - top) if may else 0.0 for x, may in zip(signed, mask, strict=True)]
    total = math.fsum(powers)
    return [power / total for power in powers]


def _average(weights: list[float], v: Matrix) -> list[float]:
    return [math.fsum(w * row[c] for w, row in zip(weights, v, strict=True)) for c in range(len(v[0]))]
