"""The operators in plain float64 loops, straight from the formulas: what the fast paths are checked against."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dna_suite.errors import UnknownName

Matrix = list[list[float]]

# Query and value stream of the softmax branch, and of the softmin branch where there is one.
_BRANCHES = {
    "softmax": (("q", "v"), None),
    "softmax-wide": (("q", "v"), None),
    "softmax-value": (("q", "v"), None),
    "dna": (("q", "v"), ("q_neg", "v_neg")),
    "dna-q": (("q", "v"), ("q_neg", "v")),
    "dna-v": (("q", "v"), ("q", "v_neg")),
    "dna-shared": (("q", "v"), ("q", "v")),
    "dna-shared-plain": (("q", "v"), ("q", "v")),
}

NAMES = (*_BRANCHES, "differential", "cog")


def compute_reference(
    name: str,
    s: Mapping[str, Tensor],
    *,
    scale: float,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    zero_logit: bool = False,
    alpha: Sequence[float] | None = None,
    lambda_vectors: Sequence[Sequence[float]] | None = None,
    lambda_plain: float | None = None,
    layer: int = 0,
    norm_weight: Sequence[float] | None = None,
) -> Tensor:
    """The output of an operator, computed number by number.

    Args:
        name: operator.
        s: its streams, [batch, heads, tokens, channels] each.
        scale: factor of q k'.
        bias: broadcast to [batch, heads, queries, keys].
        mask: boolean, True = may attend, broadcast likewise.
        zero_logit: a blocked pair stays in the sum with logit 0 instead of leaving it.
        alpha: weight of the negative branch for each head; 1 if None.
        lambda_vectors: q1, k1, q2, k2 of differential attention, half a head's channels each.
        lambda_plain: its one number instead of the vectors.
        layer: its layer index.
        norm_weight: weight of its norm, a head's channels.

    Returns:
        float64, [batch, heads, queries, value_dim].

    Raises:
        UnknownName: the reference does not know the operator.
    """
    if name not in NAMES:
        raise UnknownName("attention", name, NAMES)
    batch, heads, queries = s["q"].shape[:3]
    shape = (batch, heads, queries, s["k"].shape[2])
    biases = torch.zeros(shape, dtype=torch.float64) if bias is None else bias.double().expand(shape)
    masks = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    out = []
    for b in range(batch):
        for h in range(heads):
            head = {stream: t[b, h].tolist() for stream, t in s.items()}
            call = _Call(head, scale, biases[b, h].tolist(), masks[b, h].tolist(), zero_logit)
            if name == "differential":
                out.append(_differential(call, lambda_vectors, lambda_plain, layer, norm_weight))
            elif name == "cog":
                out.append(_cog(call))
            else:
                out.append(_branches(name, call, 1.0 if alpha is None else alpha[h]))
    return torch.tensor(out, dtype=torch.float64).unflatten(0, (batch, heads))


@dataclass(frozen=True)
class _Call:
    """One head of one sample."""

    s: dict[str, Matrix]
    scale: float
    bias: Matrix
    mask: list[list[bool]]
    zero_logit: bool

    def logits(self, i: int, query: str = "q", channels: slice = slice(None)) -> list[float]:
        q = self.s[query][i][channels]
        products = [math.fsum(a * b for a, b in zip(q, key[channels], strict=True)) for key in self.s["k"]]
        return [self.scale * product + self.bias[i][j] for j, product in enumerate(products)]

    def weigh(self, i: int, logits: list[float]) -> list[float]:
        return _softmax(logits, self.mask[i], self.zero_logit)


def _branches(name: str, call: _Call, alpha: float) -> Matrix:
    (q, v), negative = _BRANCHES[name]
    rows = []
    for i in range(len(call.s[q])):
        row = _average(call.weigh(i, call.logits(i, q)), call.s[v])
        if negative is not None:
            q_neg, v_neg = negative
            weights = call.weigh(i, [-x for x in call.logits(i, q_neg)])
            row = [p + alpha * n for p, n in zip(row, _average(weights, call.s[v_neg]), strict=True)]
        rows.append(row)
    return rows


def _cog(call: _Call) -> Matrix:
    rows = []
    for i in range(len(call.s["q"])):
        logits = call.logits(i)
        if call.zero_logit:
            logits = [x if may else 0.0 for x, may in zip(logits, call.mask[i], strict=True)]
        weights = call.weigh(i, [abs(x) for x in logits])
        rows.append(_average([w * ((x > 0) - (x < 0)) for w, x in zip(weights, logits, strict=True)], call.s["v"]))
    return rows


def _differential(
    call: _Call,
    vectors: Sequence[Sequence[float]] | None,
    plain: float | None,
    layer: int,
    norm_weight: Sequence[float] | None,
) -> Matrix:
    half, start = len(call.s["q"][0]) // 2, 0.8 - 0.6 * math.exp(-0.3 * layer)
    if vectors is not None:
        q1, k1, q2, k2 = vectors
        plain = math.exp(_dot(q1, k1)) - math.exp(_dot(q2, k2)) + start
    assert plain is not None
    rows = []
    for i in range(len(call.s["q"])):
        first = call.weigh(i, call.logits(i, channels=slice(0, half)))
        second = call.weigh(i, call.logits(i, channels=slice(half, None)))
        row = _average([p - plain * n for p, n in zip(first, second, strict=True)], call.s["v"])
        if norm_weight is not None:
            root = math.sqrt(_dot(row, row) / len(row) + 1e-5)
            row = [(1 - start) * w * x / root for w, x in zip(norm_weight, row, strict=True)]
        rows.append(row)
    return rows


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def _softmax(logits: list[float], mask: list[bool], zero_logit: bool) -> list[float]:
    """Softmax over the keys that may be attended to; zeros where there is none."""
    if zero_logit:
        logits = [x if may else 0.0 for x, may in zip(logits, mask, strict=True)]
        mask = [True] * len(mask)
    allowed = [x for x, may in zip(logits, mask, strict=True) if may]
    if not allowed:
        return [0.0] * len(logits)
    top = max(allowed)
    powers = [math.exp(x - top) if may else 0.0 for x, may in zip(logits, mask, strict=True)]
    total = math.fsum(powers)
    return [power / total for power in powers]


def _average(weights: list[float], v: Matrix) -> list[float]:
    return [math.fsum(w * row[c] for w, row in zip(weights, v, strict=True)) for c in range(len(v[0]))]
