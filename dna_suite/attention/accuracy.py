"""How far an attention's paths are from the float64 reference, on this machine and in each precision."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from dna_suite.attention.multihead import QUERIES, MultiHeadAttention
from dna_suite.attention.operator import Operator, Streams
from dna_suite.attention.reference import compute_reference
from dna_suite.attention.registry import build_attention, operator_class
from dna_suite.attention.scores import Scores
from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec

# Largest error over largest number, of the output and of the gradients. float64 and float32 are a few roundings of sums of tens
# of terms. In half precision the inputs are the same rounded numbers on both sides; the paths round logits, maps or outputs to 8
# bits (bfloat16: 4e-3 a rounding) or 11 bits (float16: 5e-4), and gradients meet several roundings and cancel.
BOUNDS: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-13, 1e-12),
    torch.float32: (2e-6, 5e-6),
    torch.bfloat16: (3e-2, 6e-2),
    torch.float16: (4e-3, 8e-3),
}

HEADS, HEAD_DIM = 2, 8
# The reference is loops. A pattern has a class token and 4 x 4 patches, the fewest in which fibottention fills both heads.
KEYS, PATTERN_TOKENS = 9, 17


@dataclass(frozen=True)
class Path:
    """One way to compute an attention.

    Args:
        name: as shown.
        fused: fused calls are asked for.
        options: of the pattern: its engine, and what becomes of pairs that it does not keep.
    """

    name: str
    fused: bool
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def zero_logit(self) -> bool:
        """Whether pairs that the pattern does not keep stay in the sum with logit 0."""
        return self.options.get("mask_mode") == "zero_logit"


@dataclass(frozen=True)
class Case:
    """One way to call an attention.

    Args:
        queries: query tokens.
        keys: key tokens.
        bias: with a bias.
        mask: with a mask, one row of which blocks every key.
    """

    queries: int
    keys: int
    bias: bool = False
    mask: bool = False


@dataclass(frozen=True)
class Accuracy:
    """The largest errors of one path in one precision, over all cases.

    Args:
        output: largest error over largest number of the output.
        gradient: the same of the gradient that is worst.
        refused: why the path does not run here; empty where it does.
    """

    output: float = 0.0
    gradient: float = 0.0
    refused: str = ""


def list_paths(spec: AttentionSpec, device: str) -> list[Path]:
    """The paths of an attention on a device: fused and written out; under a pattern also over offsets, in both mask modes."""
    if spec.pattern is None:
        return [Path("fused", True), Path("written out", False)]
    diagonal = PATTERNS[spec.pattern].diagonal
    paths = []
    for mode in ("neg_inf", "zero_logit"):
        tail = "" if mode == "neg_inf" else ", zero_logit"
        dense = {"mask_mode": mode, **({"engine": "dense"} if diagonal else {})}
        if mode == "neg_inf":
            paths.append(Path("fused", True, dense))
        paths.append(Path(f"written out{tail}", False, dense))
        if diagonal and device == "cpu" and operator_class(spec.name).runs_diagonals:
            paths.append(Path(f"offsets{tail}", True, {"mask_mode": mode, "engine": "offsets"}))
    return paths


def list_cases(spec: AttentionSpec, path: Path) -> list[Case]:
    """The calls that a path is tried with: offsets take neither bias nor mask, and zero_logit no mask."""
    if spec.pattern is None:
        both = (False, True)
        return [Case(5, KEYS), *(Case(KEYS, KEYS, bias, mask) for bias in both for mask in both)]
    plain = Case(PATTERN_TOKENS, PATTERN_TOKENS)
    if path.options.get("engine") == "offsets":
        return [plain]
    return [plain, replace(plain, bias=True, mask=not path.zero_logit)]


def is_foreign(name: str) -> bool:
    """Whether an operator is another package's: there are no loops of ours, and its own written-out form takes their place."""
    return bool(OPERATORS[name].implementation)


def measure_accuracy(spec: AttentionSpec, path: Path, dtype: torch.dtype, device: str = "cpu") -> Accuracy:
    """Compares one path with the float64 loops, and its gradients with those of the written-out form in float64.

    Args:
        spec: the attention; its layer is the second of two.
        path: one of `list_paths`.
        dtype: precision of the streams.
        device: where the path runs; the reference runs on the CPU.
    """
    generator = torch.Generator().manual_seed(0)
    layer = _make_layer(spec, path, generator)
    operator = layer.operator.to(dtype=dtype)
    exact = copy.deepcopy(operator).double()
    operator = operator.to(device=device)
    worst = Accuracy()
    for case in list_cases(spec, path):
        s, bias, mask = _make_inputs(layer, case, dtype, generator)
        layer.fused = False
        wide = {name: t.double() for name, t in s.items()}
        scores = layer.make_scores(wide, bias, mask)
        expected = _differentiate(exact, wide, scores)
        if not is_foreign(spec.name):
            kept = None if scores.mask is None else scores.mask.cpu()
            told: dict[str, Any] = {"scale": layer.scale, "bias": bias, "mask": kept, "zero_logit": path.zero_logit}
            expected[0] = compute_reference(spec.name, wide, **told, **exact.constants())
        layer.fused = path.fused
        moved = {name: t.to(device) for name, t in s.items()}
        try:
            scores = layer.make_scores(moved, *(None if t is None else t.to(device) for t in (_rounded(bias, dtype), mask)))
            found = _differentiate(operator, moved, scores)
        except DnaError as problem:
            return replace(worst, refused=str(problem))
        worst = _worse(worst, found, expected, len(s))
    return worst


def max_error(before: float, found: Tensor, expected: Tensor, scale: float | None = None) -> float:
    """The larger of `before` and the largest error over `scale`, or over the largest number; NaN once anything is NaN."""
    largest = max(float(expected.detach().abs().max()) if scale is None else scale, 1e-30)
    error = float((found.detach().cpu().double() - expected.detach()).abs().max()) / largest
    return error if math.isnan(error) or error > before else before


def _worse(worst: Accuracy, found: list[Tensor], expected: list[Tensor], streams: int) -> Accuracy:
    """The larger errors of what was found before and of one call: its output, the gradients of its streams, of its parameters."""
    output = max_error(worst.output, found[0], expected[0])
    gradient = worst.gradient
    # A parameter's gradient is a sum over all tokens that may cancel: its error is measured by the size of all gradients.
    largest = max(float(t.abs().max()) for t in expected[1:])
    for place, (ours, theirs) in enumerate(zip(found[1:], expected[1:], strict=True)):
        gradient = max_error(gradient, ours, theirs, None if place < streams else largest)
    return Accuracy(output, gradient)


def _make_layer(spec: AttentionSpec, path: Path, generator: torch.Generator) -> MultiHeadAttention:
    """A layer with random parameters in its operator."""
    told = replace(spec, options={**spec.options, **path.options})
    layer = build_attention(told, dim=HEADS * HEAD_DIM, heads=HEADS, layer=1, depth=2, prefix=1)
    with torch.no_grad():
        for parameter in layer.operator.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return layer


def _make_inputs(
    layer: MultiHeadAttention, case: Case, dtype: torch.dtype, generator: torch.Generator
) -> tuple[Streams, Tensor | None, Tensor | None]:
    """Random streams in a precision, a bias [1, heads, queries, keys] and a mask [queries, keys] whose second row is empty."""
    s = {}
    with torch.no_grad():
        widths = {name: t.shape[-1] for name, t in layer.project(torch.zeros(1, 1, HEADS * HEAD_DIM)).items()}
    for name, width in widths.items():
        tokens = case.queries if name in QUERIES else case.keys
        s[name] = torch.randn(1, HEADS, tokens, width, generator=generator).to(dtype)
    bias = torch.randn(1, HEADS, case.queries, case.keys, generator=generator).to(dtype).double() if case.bias else None
    mask = torch.rand(case.queries, case.keys, generator=generator) > 0.3
    mask[1] = False
    return s, bias, mask if case.mask else None


def _rounded(bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if bias is None else bias.to(dtype)


def _differentiate(operator: Operator, s: Streams, scores: Scores) -> list[Tensor]:
    """The output, and the gradients of its weighed sum for every stream and parameter; zeros for what it does not depend on."""
    s = {name: t.detach().requires_grad_() for name, t in s.items()}
    out = operator(s, scores)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).cos().view(out.shape)
    leaves = [*s.values(), *operator.parameters()]
    return [out, *torch.autograd.grad(out, leaves, weights.to(out), allow_unused=True, materialize_grads=True)]
