"""Position tables of weights, resized to a model for another picture size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timm.layers import resample_abs_pos_embed, resize_rel_pos_bias_table
from torch import Tensor, nn

from dna_suite.attention.warm_start import Change
from dna_suite.backbones.swin import WindowedAttention
from dna_suite.errors import DnaError


def resize_position(model: Any, wanted: Mapping[str, Tensor], state: dict[str, Tensor], source: Path) -> list[Change]:
    """Resizes the position table to the model's grid of patches, in place: bicubic, rows of prefix tokens kept.

    Args:
        model: from `build_image_model`.
        wanted: the model's tensors.
        state: the weights, by the model's names.
        source: the file, for messages.

    Raises:
        DnaError: the table is no square grid.
    """
    old, new = state.get("pos_embed"), wanted.get("pos_embed")
    if old is None or new is None or old.dim() != 3 or old.shape[1] == new.shape[1] or old.shape[2] != new.shape[2]:
        return []
    # ConViT's class token joins without a position, as that of a ViT with no_embed_class.
    rows, prefix = old.shape[1], 0 if getattr(model, "no_embed_class", True) else model.num_prefix_tokens
    side = math.isqrt(max(rows - prefix, 0))
    if side < 1 or side * side != rows - prefix:
        fit = _is_square(rows - 1) if prefix == 0 else _is_square(rows)
        hint = f": model.class_token_position={'true' if prefix == 0 else 'false'} fits it" if fit else ""
        raise DnaError(f"{source}: a position table of {rows} rows is no square grid with {prefix} rows before it{hint}")
    grid = model.patch_embed.grid_size
    state["pos_embed"] = resample_abs_pos_embed(old.float(), new_size=list(grid), num_prefix_tokens=prefix)
    return [Change("pos_embed", "resized", f"{side} x {side} -> {grid[0]} x {grid[1]} patches, bicubic")]


def resize_tables(model: nn.Module, state: dict[str, Tensor]) -> list[Change]:
    """Resizes the relative position tables of square windows to the model's windows, in place, as timm's `set_window_size` does.

    Args:
        model: from `build_image_model`.
        state: the weights, by the model's names.
    """
    changes = []
    for path, layer in model.named_modules():
        name = f"{path}.relative_position_bias_table"
        if not isinstance(layer, WindowedAttention) or name not in state:
            continue
        old, new = state[name], layer.relative_position_bias_table
        side = (math.isqrt(len(old)) + 1) // 2
        if old.shape == new.shape or old.shape[1:] != new.shape[1:] or (2 * side - 1) ** 2 != len(old):
            continue
        window = layer.window_size
        state[name] = resize_rel_pos_bias_table(old.float(), window, tuple(new.shape), (side, side))
        changes.append(Change(name, "resized", f"windows of {side} x {side} -> {window[0]} x {window[1]}"))
    return changes


def _is_square(number: int) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number
