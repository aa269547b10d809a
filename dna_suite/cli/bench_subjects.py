"""What `dna bench attention` runs: operators on projected streams, whole layers, and what they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from timm.layers.attention import Attention
from timm.layers.diff_attention import DiffAttention
from torch import Tensor, nn
from torch.nn import functional as F

from dna_suite.attention.kept import Kept, count_kept
from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.registry import build_attention
from dna_suite.catalogue import PATTERNS
from dna_suite.cli.bench_timing import Cost, summarise
from dna_suite.spec import AttentionSpec

# The differential operator asks for its place in the model.
LAYER, DEPTH = 1, 12
PASSES = ("forward", "step")
# How an attention may be told to run; without a word it picks.
ENGINES = ("written out", "masked", "offsets")


@dataclass(frozen=True)
class Shape:
    """What the subjects of one group share.

    Args:
        batch: samples.
        tokens: tokens of a sample.
        dim: width of a token.
        heads: attention heads.
        dtype: type of tokens and parameters.
        device: where it runs.
        engines: those that an attention is told to use, beside the one that it picks.
    """

    batch: int
    tokens: int
    dim: int
    heads: int
    dtype: torch.dtype
    device: str
    engines: Sequence[str] = ENGINES

    def tensor(self, *shape: int) -> Tensor:
        """Random numbers, [batch, tokens, *shape]."""
        return torch.randn(self.batch, self.tokens, *shape, dtype=self.dtype, device=self.device)


@dataclass
class Subject:
    """One thing that is timed.

    Args:
        name: attention and path, as in "dna, written out".
        run: the forward pass.
        leaves: what a training step gives gradients to.
        parameters: tensors that are there anyway, and do not count as kept.
        multiply_adds: of one sample, written out; None where nothing says it.
    """

    name: str
    run: Callable[[], Tensor]
    leaves: list[Tensor]
    parameters: list[Tensor]
    multiply_adds: int | None = None

    def forward(self) -> None:
        """A pass without gradients."""
        with torch.no_grad():
            self.run()

    @cached_property
    def weights(self) -> Tensor:
        """The gradient that arrives from above."""
        with torch.no_grad():
            return torch.randn_like(self.run())

    def step(self) -> None:
        """A forward and a backward pass."""
        torch.autograd.grad(self.run(), self.leaves, self.weights)

    def kept(self) -> Kept:
        """What a forward pass keeps for the backward pass; inputs count, parameters do not."""
        return count_kept(self.run, without=self.parameters)

    def peak(self, device: str) -> int:
        """Bytes that the CUDA allocator's peak rises by in a training step."""
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        self.step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before


def describe_subject(subject: Subject, costs: dict[str, dict[str, list[Cost]]], batch: int, device: str) -> dict[str, Any]:
    """Times of each pass, samples a second, bytes kept for the backward pass, on CUDA the allocator's peak, and multiply-adds.

    Args:
        subject: what was timed.
        costs: by pass and name.
        batch: samples of a call.
        device: where it ran.
    """
    described: dict[str, Any] = {passes: summarise(costs[passes][subject.name]) for passes in PASSES}
    for passes in PASSES:
        described[passes]["samples_per_second"] = 1e3 * batch / described[passes]["ms"]
    described["kept_bytes"] = subject.kept().bytes
    if device.startswith("cuda"):
        described["peak_bytes"] = subject.peak(device)
    return {**described, "multiply_adds": subject.multiply_adds}


def read_label(label: str) -> AttentionSpec:
    """The attention that an operator's name, and a pattern's after a plus, stand for."""
    name, _, pattern = label.partition("+")
    return AttentionSpec(name, pattern or None)


def streams_subjects(labels: Iterable[str], shape: Shape) -> dict[str, Subject]:
    """Each attention on projected streams, in every engine that it has, and bare fused softmax as "dense"."""
    subjects = {}
    head_dim = shape.dim // shape.heads
    q, k, v = (shape.tensor(shape.heads, head_dim).transpose(1, 2).requires_grad_() for _ in range(3))
    cost = 2 * shape.dim * shape.tokens**2
    subjects["dense"] = Subject("dense", lambda: F.scaled_dot_product_attention(q, k, v), [q, k, v], [], cost)
    for label in labels:
        made = build_layers(label, shape)
        with torch.no_grad():
            projected = made[label].project(shape.tensor(shape.dim))
        s = {name: torch.randn_like(t).requires_grad_() for name, t in projected.items()}
        for name, layer in made.items():
            subjects[name] = _operator_subject(name, layer, s)
    return subjects


def _operator_subject(name: str, layer: MultiHeadAttention, s: dict[str, Tensor]) -> Subject:
    parameters: list[Tensor] = list(layer.operator.parameters())
    _, heads, tokens, head_dim = s["q"].shape
    cost = layer.operator.multiply_adds(heads, tokens, tokens, head_dim)
    if layer.pattern is not None:
        cost = cost * layer.pattern.count_pairs(tokens) // (heads * tokens**2)
    return Subject(name, lambda: layer.mix(s, layer.make_scores(s, None, None)), [*s.values(), *parameters], parameters, cost)


def layer_subjects(labels: Iterable[str], shape: Shape) -> dict[str, Subject]:
    """Each attention as a whole layer, with projections, in every engine that it has, and timm's own layers."""
    x = shape.tensor(shape.dim).requires_grad_()
    settings: dict[str, Any] = {"device": shape.device, "dtype": shape.dtype}
    layers: dict[str, nn.Module] = {
        "timm Attention": Attention(shape.dim, shape.heads, qkv_bias=True, **settings),
        "timm DiffAttention": DiffAttention(shape.dim, shape.heads, qkv_bias=True, depth=LAYER, **settings),
    }
    for label in labels:
        layers |= build_layers(label, shape)
    return {name: _layer_subject(name, layer, x) for name, layer in layers.items()}


def _layer_subject(name: str, layer: nn.Module, x: Tensor) -> Subject:
    parameters: list[Tensor] = list(layer.parameters())
    return Subject(name, lambda: layer(x), [x, *parameters], parameters)


def build_layers(label: str, shape: Shape) -> dict[str, MultiHeadAttention]:
    """The layer of an attention that picks its engine, and beside it one for each engine that it can be told to use.

    Args:
        label: an operator, and after a plus a pattern.
        shape: what all subjects share; under a pattern the first token is a class token.
    """
    spec = read_label(label)
    options: dict[str, dict[str, Any]] = {label: {}}
    if spec.pattern is None:
        options[f"{label}, written out"] = {}
    elif PATTERNS[spec.pattern].diagonal:
        options[f"{label}, masked"] = {"engine": "dense"}
        if shape.device == "cpu":
            options[f"{label}, offsets"] = {"engine": "offsets"}
    layers = {}
    for name, told in options.items():
        if name != label and name.removeprefix(f"{label}, ") not in shape.engines:
            continue
        layer = build_attention(
            replace(spec, options=told), dim=shape.dim, heads=shape.heads, layer=LAYER, depth=DEPTH, prefix=1
        ).to(device=shape.device, dtype=shape.dtype)
        layer.fused = not name.endswith(", written out")
        layers[name] = layer
    return layers
