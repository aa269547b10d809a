"""Which engine computes a sparse pattern: SDPA or written-out maps with a mask, or offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dna_suite.attention.operator import Operator
from dna_suite.attention.pattern import DiagonalPattern, Pattern
from dna_suite.attention.scores import Scores
from dna_suite.errors import DnaError

if TYPE_CHECKING:
    from dna_suite.attention.multihead import MultiHeadAttention

COMPILE = "torch.compile"

# Patches for each thread from which offsets beat the masked kernel at 12 heads of 64 channels. In one thread, forward and with
# backward: 0.4 and 0.5 times as fast at 64 patches, 1.1 and 1.3 at 196, 4.3 and 5.0 at 784. Offsets run in one thread, the
# kernel in all of them.
CROSSOVER = 196
# Patches for each offset below which the kernel wins: an offset costs 0.4 ms of the kernel's 62 at 784 patches.
PATCHES_PER_OFFSET = 12


def count_threads() -> int:
    """Threads that a kernel has."""
    return torch.get_num_threads()


def choose_engine(pattern: Pattern, tokens: int, device: torch.device, obstacle: str | None = None) -> str:
    """The engine of one call: "offsets" where it is measured faster, else "dense".

    Args:
        pattern: its `engine` "auto" lets size and device decide; "dense" and "offsets" are taken at their word.
        tokens: tokens of the call.
        device: where the call runs; offsets run on a CPU.
        obstacle: what in this call keeps offsets from running.

    Raises:
        DnaError: offsets are asked for where they cannot run.
    """
    if not isinstance(pattern, DiagonalPattern) or pattern.engine == "dense":
        return "dense"
    if obstacle is None and device.type != "cpu":
        obstacle = f"the device {device.type}"
    if obstacle is None and torch.compiler.is_compiling():
        obstacle = COMPILE
    if pattern.engine == "offsets":
        if obstacle is not None:
            raise DnaError(f"attention.options.engine offsets cannot run with {obstacle}: auto or dense can")
        return "offsets"
    if obstacle is not None:
        return "dense"
    patches = pattern.count_patches(tokens)
    if patches < CROSSOVER * count_threads():
        return "dense"
    distances = pattern.distances(patches)
    slots = max(sum(1 + (o > 0) for o in head) for head in distances)
    return "offsets" if patches >= PATCHES_PER_OFFSET * slots else "dense"


def restrict_scores(scores: Scores, pattern: Pattern, operator: Operator, q: Tensor) -> Scores:
    """The scores of one call under a pattern, for the engine that is picked.

    Args:
        scores: of the call.
        pattern: of the layer.
        operator: of the layer.
        q: queries, [batch, heads, tokens, head_dim]; the keys are those of the same tokens.

    Raises:
        DnaError: the tokens cannot have the pattern, offsets are asked for where they cannot run, or a mask comes on top of a
            pattern whose missing pairs stay in the sum.
    """
    tokens = q.shape[2]
    if scores.mask is not None and pattern.mask_mode == "zero_logit":
        raise DnaError("attention.options.mask_mode zero_logit keeps every pair in the sum: a mask on top needs neg_inf")
    if scores.fused and choose_engine(pattern, tokens, q.device, _obstacle(scores, operator)) == "offsets":
        assert isinstance(pattern, DiagonalPattern)
        return replace(scores, mask_mode=pattern.mask_mode, diagonals=pattern.diagonals(tokens))
    mask = pattern.mask(tokens, q.device)
    return replace(scores, mask_mode=pattern.mask_mode, mask=mask if scores.mask is None else mask & scores.mask)


def describe_engine(layer: MultiHeadAttention, tokens: int, device: torch.device | str, compiled: bool = False) -> str:
    """The engine of a layer's calls without bias, mask and dropout: "offsets", "dense, masked", or "dense" without a pattern.

    Args:
        layer: attention layer.
        tokens: tokens of a call, prefix included.
        device: where it runs.
        compiled: the model is compiled.
    """
    if layer.pattern is None:
        return "dense"
    scores = Scores(layer.scale, dropout=layer.attn_drop if layer.training else 0.0)
    obstacle = _obstacle(scores, layer.operator) or (COMPILE if compiled else None)
    engine = choose_engine(layer.pattern, tokens, torch.device(device), obstacle)
    return "offsets" if engine == "offsets" and layer.fused else "dense, masked"


def _obstacle(scores: Scores, operator: Operator) -> str | None:
    if not operator.runs_diagonals:
        return f"the operator {type(operator).__name__}"
    named = {"a bias": scores.bias is not None, "a mask": scores.mask is not None, "dropout of maps": scores.dropout > 0}
    return next((name for name, there in named.items() if there), None)
