"""Attention in the place of timm's `WindowAttention`, in Swin transformers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from timm.layers import resize_rel_pos_bias_table
from torch import Tensor, nn

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.operator import Operator, Streams
from dna_suite.attention.registry import build_attention
from dna_suite.attention.scores import Bias, Scores
from dna_suite.backbones.place import Place, adopt
from dna_suite.errors import DnaError


class WindowedAttention(MultiHeadAttention):
    """Attention within windows, with the call and the relative position table of timm's `WindowAttention`.

    The table's rows are added to the logits of every query stream; under softmin they are negated with the logits. The mask of
    shifted windows blocks: timm adds -100, which softmin would turn into the largest logit of the row.

    Args:
        operator: mixes the values.
        window: height and width of a window, tokens.
        **settings: as for `MultiHeadAttention`.
    """

    relative_position_index: Tensor

    def __init__(self, operator: Operator, *, window: tuple[int, int], **settings: Any) -> None:
        super().__init__(operator, **settings)
        weight = self.proj.weight
        self.window_size = window
        rows = (2 * window[0] - 1) * (2 * window[1] - 1)
        self.relative_position_bias_table = nn.Parameter(weight.new_empty(rows, self.heads))
        self.init_non_persistent_buffers()
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    @property
    def window_area(self) -> int:
        """Tokens of one window."""
        return self.window_size[0] * self.window_size[1]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Attends within each window.

        Args:
            x: tokens, [pictures * windows, window area, dim], the window's index fastest.
            mask: for each window of a picture, [windows, window area, window area]; boolean (True = may attend), or timm's:
                0 where a query may attend and another number where it may not.

        Returns:
            [pictures * windows, window area, dim].

        Raises:
            DnaError: `x` holds other windows than the layer's, or no whole pictures of the mask's windows.
        """
        if x.shape[1] != self.window_area:
            height, width = self.window_size
            raise DnaError(f"{x.shape[1]} tokens are no window of {height} x {width}: set_window_size changes the window")
        if mask is not None:
            if x.shape[0] % mask.shape[0]:
                raise DnaError(f"{x.shape[0]} windows are no whole pictures of the mask's {mask.shape[0]} windows")
            allowed = mask if mask.dtype == torch.bool else mask == 0
            mask = allowed.repeat(x.shape[0] // allowed.shape[0], 1, 1).unsqueeze(1)
        return super().forward(x, bias=self.relative_bias(), mask=mask)

    def make_scores(self, s: Streams, bias: Bias | None, mask: Tensor | None) -> Scores:
        """Scores that are written out where a CPU trains the table: fused calls keep the maps then too, and take longer."""
        scores = super().make_scores(s, bias, mask)
        trained = isinstance(bias, Tensor) and bias.requires_grad and bias.device.type == "cpu"
        return replace(scores, fused=False) if trained and not torch.jit.is_tracing() else scores

    def relative_bias(self) -> Tensor:
        """The table's number for each pair of places, [1, heads, window area, window area]."""
        pairs = self.relative_position_bias_table[self.relative_position_index.flatten()]
        return pairs.view(self.window_area, self.window_area, -1).permute(2, 0, 1).contiguous().unsqueeze(0)

    def set_window_size(self, window_size: int | tuple[int, int]) -> None:
        """Changes the window and interpolates the table, as timm does.

        Args:
            window_size: side, or height and width, tokens.
        """
        window = (window_size, window_size) if isinstance(window_size, int) else (window_size[0], window_size[1])
        if window == self.window_size:
            return
        table, old = self.relative_position_bias_table, self.window_size
        shape = ((2 * window[0] - 1) * (2 * window[1] - 1), self.heads)
        with torch.no_grad():
            resized = resize_rel_pos_bias_table(table, new_window_size=window, new_bias_shape=shape, old_window_size=old)
        self.window_size = window
        self.relative_position_bias_table = nn.Parameter(resized, requires_grad=table.requires_grad)
        self.init_non_persistent_buffers()

    def init_non_persistent_buffers(self) -> None:
        """Fills the index of relative places, which no state dict holds."""
        index = relative_index(self.window_size, self.relative_position_bias_table.device)
        self.register_buffer("relative_position_index", index, persistent=False)

    def reset_parameters(self) -> None:
        """Truncated normal weights and table of deviation 0.02, zero biases."""
        super().reset_parameters()
        if "relative_position_bias_table" in self._parameters:
            nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)


def relative_index(window: tuple[int, int], device: torch.device | None = None) -> Tensor:
    """Row of the table for each query and key of a window, int64 [area, area]: (dy + h - 1)(2w - 1) + dx + w - 1.

    Args:
        window: height h and width w; places are counted row by row, dy and dx are query minus key.
        device: where the index is made.
    """
    height, width = window
    place = torch.arange(height * width, device=device)
    row, column = place // width, place % width
    dy, dx = row[:, None] - row[None, :], column[:, None] - column[None, :]
    return (dy + height - 1) * (2 * width - 1) + dx + width - 1


def adapt_window(host: Any, place: Place) -> MultiHeadAttention:
    """The layer that takes the place of a Swin `WindowAttention`: its weights, table, window and dropout are kept.

    Raises:
        DnaError: the spec asks for a sparse pattern in this layer.
    """
    window = (host.window_size[0], host.window_size[1])
    pattern = place.chosen.pattern
    if pattern is not None:
        raise DnaError(
            f"attention pattern {pattern!r} cannot stand in WindowAttention: it is for the tokens of a whole picture, "
            f"Swin attends within windows of {window[0]} x {window[1]}; attention.pattern=null is needed"
        )
    head_dim = host.qkv.out_features // 3 // host.num_heads
    layer = build_attention(
        place.spec,
        dim=host.dim,
        heads=host.num_heads,
        layer=place.layer,
        depth=place.depth,
        head_dim=head_dim,
        dim_out=host.proj.out_features,
        qkv_bias=host.qkv.bias is not None,
        scale=host.scale,
        attn_drop=host.attn_drop.p,
        proj_drop=host.proj_drop.p,
        device=host.qkv.weight.device,
        dtype=host.qkv.weight.dtype,
        layer_class=partial(WindowedAttention, window=window),
    )
    adopt(layer, host.state_dict())
    return layer.train(host.training)
