"""Position tables of weights, made to fit a model for another picture size or with other tokens before the patches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from timm.layers import resample_abs_pos_embed, resize_rel_pos_bias_table
from torch import Tensor, nn

from dna_suite.attention.warm_start import Change
from dna_suite.backbones.swin import WindowedAttention
from dna_suite.errors import DnaError

TABLE = "pos_embed"
# A class token, and a distillation token after it.
MOST_PREFIX_ROWS = 2


def resize_position(model: Any, wanted: Mapping[str, Tensor], state: dict[str, Tensor], source: Path) -> list[Change]:
    """Makes the position table fit the model's grid of patches and its prefix tokens, in place.

    Another grid is resized (bicubic). A class token without a position gets a row of zeros; a class row that the model has no
    place for is added to the class token: both leave the function as it was. The row of a distillation token that the weights
    lack is the model's own, one that the model lacks goes with its token.

    Args:
        model: from `build_image_model`.
        wanted: the model's tensors.
        state: the weights, by the model's names.
        source: the file, for messages.

    Raises:
        DnaError: the table is no square grid.
    """
    old, new = state.get(TABLE), wanted.get(TABLE)
    if old is None or new is None or old.dim() != 3 or old.shape[1] == new.shape[1] or old.shape[2] != new.shape[2]:
        return []
    # ConViT's class token joins without a position, as that of a ViT with no_embed_class.
    need = 0 if getattr(model, "no_embed_class", True) else model.num_prefix_tokens
    have = _prefix_rows(old, source)
    changes = _change_prefix(state, new, have, need)
    side, grid = math.isqrt(old.shape[1] - have), model.patch_embed.grid_size
    if (side, side) != tuple(grid):
        state[TABLE] = resample_abs_pos_embed(state[TABLE].float(), new_size=list(grid), num_prefix_tokens=need)
        changes.append(Change(TABLE, "resized", f"{side} x {side} -> {grid[0]} x {grid[1]} patches, bicubic"))
    return changes


def fold_class_row(state: dict[str, Tensor]) -> None:
    """Adds the class token's row of the position table to the token and takes it out of the table, in place.

    The sum that the first block sees stays the same. A table without that row stays as it is.

    Args:
        state: tensors of a ViT; `pos_embed` is [1, rows, dim], `cls_token` [1, 1, dim].
    """
    table = state[TABLE]
    if not _is_square(table.shape[1]):
        state["cls_token"] = state["cls_token"] + table[:, :1]
        state[TABLE] = table[:, 1:].contiguous()


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


def _prefix_rows(table: Tensor, source: Path) -> int:
    """Rows before the grid; a number of rows leaves one choice, since two squares are at least 3 apart."""
    rows = table.shape[1]
    for prefix in range(MOST_PREFIX_ROWS + 1):
        if _is_square(rows - prefix):
            return prefix
    raise DnaError(f"{source}: a position table of {rows} rows is no square grid with 0 to {MOST_PREFIX_ROWS} rows before it")


def _change_prefix(state: dict[str, Tensor], wanted: Tensor, have: int, need: int) -> list[Change]:
    """Gives the table the prefix rows that the model needs; the rows of the grid stay as they are."""
    if have == need:
        return []
    changes = []
    table = state[TABLE]
    grid, rows = table[:, have:], table[:, : min(have, need)]
    if have == 0:
        rows = torch.zeros_like(grid[:, :1])
        changes.append(Change(TABLE, "adapted", "a row of zeros for the class token put before it"))
    if need == MOST_PREFIX_ROWS:
        rows = torch.cat((rows, wanted[:, 1:2].to(rows.dtype)), dim=1)
        changes.append(Change(TABLE, "adapted", "the model's own row for the distillation token put in"))
    if need == 0 and "cls_token" in state:
        state["cls_token"] = state["cls_token"] + table[:, :1]
        changes.append(Change("cls_token", "adapted", "the class row of pos_embed added to it"))
    if have > need:
        changes.append(Change(TABLE, "adapted", f"rows of {have} prefix tokens, {need} here"))
    state[TABLE] = torch.cat((rows, grid), dim=1)
    return changes


def _is_square(number: int) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number
