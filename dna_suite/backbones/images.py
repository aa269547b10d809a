"""Image models: timm's vision transformers with the attention that a spec names."""

from __future__ import annotations

from typing import Any, cast

from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from dna_suite.attention.options import check_attention
from dna_suite.attention.registry import check_heads
from dna_suite.backbones.hosts import replace_attention
from dna_suite.catalogue import BACKBONES
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec, chosen_layers


def build_image_model(
    backbone: str,
    *,
    size: str,
    attention: AttentionSpec,
    num_classes: int,
    image_size: int,
    channels: int = 3,
    patch: int | None = None,
    dim: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    drop_path: float = 0.0,
    class_token_position: bool = True,
) -> nn.Module:
    """A vision transformer with its attention layers replaced.

    Args:
        backbone: a key of `catalogue.BACKBONES`.
        size: a size of that backbone, "paper" or "tiny".
        attention: which attention stands in which layers.
        num_classes: outputs of the head.
        image_size: side of the square input, pixels.
        channels: channels of the input.
        patch: side of a patch, pixels; the backbone's if None.
        dim: width of a token; the backbone's if None.
        depth: blocks; the backbone's if None.
        heads: attention heads; the backbone's if None.
        drop_path: share of samples that skip the last block; it rises linearly from 0 at the first.
        class_token_position: the position table has a row for the class token (timm's layout; the DnA code has none).

    Returns:
        [batch, channels, image_size, image_size] in, [batch, num_classes] out; `.sites` lists the replaced layers and
        `.attention` is the spec.

    Raises:
        UnknownName: no such backbone, size, operator, pattern or option.
        DnaError: the heads do not divide the width, the patch does not divide the picture, or a number is out of range.
    """
    if backbone not in BACKBONES:
        raise UnknownName("backbone", backbone, BACKBONES)
    if size not in BACKBONES[backbone]:
        raise UnknownName(f"size of backbone {backbone!r}", size, BACKBONES[backbone])
    shape = BACKBONES[backbone][size]
    patch, dim = _given(patch, shape.patch), _given(dim, shape.dim)
    depth, heads = _given(depth, shape.depth), _given(heads, shape.heads)
    _check_shape(image_size, patch, dim, depth, heads, drop_path)
    check_attention(attention)
    chosen_layers(attention.layers, depth)
    if shape.distilled and not class_token_position:
        raise DnaError(f"model.class_token_position false is for plain ViTs; {backbone} has position rows for both of its tokens")
    build = VisionTransformerDistilled if shape.distilled else VisionTransformer
    model: Any = build(
        img_size=image_size,
        patch_size=patch,
        in_chans=channels,
        num_classes=num_classes,
        embed_dim=dim,
        depth=depth,
        num_heads=heads,
        drop_path_rate=drop_path,
        no_embed_class=not class_token_position,
    )
    model.sites = replace_attention(model, attention)
    model.attention = attention
    return cast(nn.Module, model)


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _check_shape(image_size: int, patch: int, dim: int, depth: int, heads: int, drop_path: float) -> None:
    for key, value in {"data.size": image_size, "model.patch": patch, "model.dim": dim, "model.depth": depth}.items():
        if value < 1:
            raise DnaError(f"{key} {value}: at least 1 is needed")
    check_heads(dim, heads, "model.dim", "model.heads")
    if image_size % patch:
        nearest = max(1, round(image_size / patch)) * patch
        raise DnaError(f"data.size {image_size} is not a multiple of model.patch {patch}: {nearest} would be")
    if not 0 <= drop_path < 1:
        raise DnaError(f"model.drop_path {drop_path}: a share from 0 up to, not including, 1 is needed")
