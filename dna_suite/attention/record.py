"""Records the maps of every attention layer while a model runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.operator import Streams
from dna_suite.attention.scores import Scores


@dataclass(frozen=True)
class LayerRecord:
    """What one attention layer did in its latest call, detached.

    Args:
        positive: the softmax map before dropout, [batch, heads, queries, keys].
        negative: the map of the negative branch before alpha, likewise; None where the operator has none.
        values: the value streams by name, each [batch, heads, keys, head_dim].
        alpha: weight of the negative branch, [heads]; None where the operator learns none.
    """

    positive: Tensor
    negative: Tensor | None
    values: dict[str, Tensor]
    alpha: Tensor | None


@contextmanager
def record_maps(model: nn.Module) -> Iterator[dict[str, LayerRecord]]:
    """Fills a dictionary, module path -> record of the latest call, while the model runs inside the block.

    The maps come from the written-out formulas; the model's own output stays as it is.
    """
    records: dict[str, LayerRecord] = {}
    layers = {path: module for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    paths = {id(module): path for path, module in layers.items()}

    def keep(layer: MultiHeadAttention, s: Streams, scores: Scores) -> None:
        with torch.no_grad():
            maps = layer.operator.maps(s, scores)
        alpha = getattr(layer.operator, "alpha", None)
        records[paths[id(layer)]] = LayerRecord(
            maps["positive"].detach(),
            maps["negative"].detach() if "negative" in maps else None,
            {name: stream.detach() for name, stream in s.items() if name.startswith("v")},
            None if alpha is None else alpha.detach().clone(),
        )

    for layer in layers.values():
        layer.recorder = keep
    try:
        yield records
    finally:
        for layer in layers.values():
            layer.recorder = None
