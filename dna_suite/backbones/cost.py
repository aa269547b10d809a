"""What a model costs: parameters, and multiply-adds of one picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.operator import Operator
from dna_suite.attention.pattern import Pattern
from dna_suite.backbones.convit import PositionalAttention


def count_parameters(model: nn.Module) -> int:
    """Trainable numbers of a model."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def count_multiply_adds(model: nn.Module, image_size: int, channels: int = 3) -> int:
    """Multiply-adds of one picture, each counted once, as the papers' "GFLOPs" are.

    Linear, convolution, and attention written out (two products for softmax; the operators say their own; kept pairs only under a
    pattern) count one for each multiply-add, LayerNorm five for each element; activations and sums count nothing. ViT-B/16 at
    224: 17,582,740,224. Swin's attention counts the tokens of its windows; ConViT's positional map costs its projection, and a
    product with V of its own where the operator is gated as a whole.
    Nothing is computed: the model runs on the meta device, and its own tensors stay where they are.

    Args:
        model: an image model from `build_image_model`, on any device.
        image_size: side of the picture, pixels.
        channels: channels of the picture.
    """
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    meta = {name: t.detach().to("meta") for name, t in tensors.items()}
    dtype = next((t.dtype for t in meta.values() if t.is_floating_point()), torch.float32)
    picture = torch.empty(1, channels, image_size, image_size, device="meta", dtype=dtype)
    # A compiled model would be compiled once more, for the meta device.
    with _counting(model) as counts, torch.no_grad(), torch.compiler.set_stance("force_eager"):
        torch.func.functional_call(model, meta, (picture,))
    return sum(counts)


@contextmanager
def _counting(model: nn.Module) -> Iterator[list[int]]:
    counts: list[int] = []
    training = {module: module.training for module in model.modules()}
    patterns = {layer.operator: layer.pattern for layer in model.modules() if isinstance(layer, MultiHeadAttention)}
    handles = [
        module.register_forward_hook(lambda hooked, given, out: counts.append(_count(hooked, given, out, patterns.get(hooked))))
        for module in model.modules()
    ]
    model.eval()
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in training.items():
            module.training = mode


def _count(module: nn.Module, inputs: tuple[Any, ...], output: Any, pattern: Pattern | None) -> int:
    match module:
        case nn.Linear():
            return output.numel() * module.in_features
        case nn.Conv2d():
            return output.numel() * module.weight[0].numel()
        case nn.LayerNorm():
            return 5 * output.numel()
        case PositionalAttention() if not module.gates_scores:
            batch, tokens, _ = inputs[0].shape
            pairs = module.heads * tokens**2 if module.pattern is None else module.pattern.count_pairs(tokens)
            return batch * pairs * module.value_dim
        case Operator():
            q: Tensor = inputs[0]["q"]
            batch, heads, queries, head_dim = q.shape
            keys = inputs[0]["k"].shape[2]
            dense = batch * module.multiply_adds(heads, queries, keys, head_dim)
            return dense if pattern is None else dense * pattern.count_pairs(queries) // (heads * queries * keys)
        case _:
            return 0
