"""Image models: timm's vision transformers with the attention that a spec names."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal, cast

from timm.layers import DropPath
from timm.models.convit import ConVit
from timm.models.deit import VisionTransformerDistilled
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from dna_suite.attention.options import check_attention
from dna_suite.attention.registry import check_heads
from dna_suite.backbones.hosts import replace_attention
from dna_suite.catalogue import BACKBONES, ConViT, Swin, ViT
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec, chosen_layers

Shape = ViT | Swin | ConViT
DROP_PATH_SHAPES = ("rising", "constant")


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
    drop_path_shape: Literal["rising", "constant"] = "rising",
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
        dim: width of a token, in Swin's first stage; the backbone's if None.
        depth: blocks; the backbone's if None; Swin has stages instead.
        heads: attention heads, in Swin's first stage; the backbone's if None.
        drop_path: share of samples that skip a residual branch of the last block.
        drop_path_shape: the share rises linearly from 0 in the first block (timm's rule), or is the same in all (the DnA code's).
        class_token_position: a ViT's position table has a row for the class token (timm's layout; the DnA code has none).

    Returns:
        [batch, channels, image_size, image_size] in, [batch, num_classes] out; `.sites` lists the replaced layers and
        `.attention` is the spec.

    Raises:
        UnknownName: no such backbone, size, drop path shape, operator, pattern or option.
        DnaError: the heads do not divide the width, the patch does not divide the picture, a number is out of range, the backbone
            has no such number, or the operator or the pattern cannot stand in it.
    """
    if backbone not in BACKBONES:
        raise UnknownName("backbone", backbone, BACKBONES)
    if size not in BACKBONES[backbone]:
        raise UnknownName(f"size of backbone {backbone!r}", size, BACKBONES[backbone])
    given = {"patch": patch, "dim": dim, "depth": depth, "heads": heads}
    shape = override_shape(backbone, BACKBONES[backbone][size], given)
    _check_shape(image_size, shape, drop_path)
    if drop_path_shape not in DROP_PATH_SHAPES:
        raise UnknownName("model.drop_path_shape", drop_path_shape, DROP_PATH_SHAPES)
    check_attention(attention)
    chosen_layers(attention.layers, shape.depth)
    if not class_token_position and (not isinstance(shape, ViT) or shape.distilled):
        reason = "has position rows for both of its tokens" if isinstance(shape, ViT) else "has no position for a class token"
        raise DnaError(f"model.class_token_position false is for plain ViTs; {backbone} {reason}")
    common = {"img_size": image_size, "in_chans": channels, "num_classes": num_classes, "drop_path_rate": drop_path}
    model: Any
    match shape:
        case ViT():
            model = build_vit(shape, class_token_position, **common)
        case Swin():
            model = build_swin(shape, **common)
        case ConViT():
            model = build_convit(shape, **common)
    if drop_path_shape == "constant":
        set_drop_path(model, drop_path)
    model.sites = replace_attention(model, attention)
    model.attention = attention
    return cast(nn.Module, model)


def override_shape(backbone: str, shape: Shape, given: dict[str, int | None]) -> Shape:
    """A backbone's shape with the given numbers in the place of its own.

    Args:
        backbone: its name, for messages.
        shape: its entry in the catalogue.
        given: patch, dim, depth and heads; None leaves the backbone's own.

    Raises:
        DnaError: the backbone has no such number: Swin's depth is that of its stages.
    """
    wanted: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    for key, value in wanted.items():
        if key not in {field.name for field in fields(shape)}:
            raise DnaError(f"model.{key} {value}: {backbone} has none; {key} is that of its stages")
    return replace(shape, **wanted)


def build_vit(shape: ViT, class_token_position: bool, **common: Any) -> nn.Module:
    """timm's VisionTransformer, or the distilled one."""
    build = VisionTransformerDistilled if shape.distilled else VisionTransformer
    return build(
        patch_size=shape.patch,
        embed_dim=shape.dim,
        depth=shape.depth,
        num_heads=shape.heads,
        no_embed_class=not class_token_position,
        **common,
    )


def build_swin(shape: Swin, **common: Any) -> nn.Module:
    """timm's SwinTransformer."""
    return SwinTransformer(
        patch_size=shape.patch,
        window_size=shape.window,
        embed_dim=shape.dim,
        depths=shape.depths,
        num_heads=tuple(shape.heads * 2**stage for stage in range(len(shape.depths))),
        **common,
    )


def build_convit(shape: ConViT, **common: Any) -> nn.Module:
    """timm's ConVit."""
    return ConVit(
        patch_size=shape.patch,
        # The host multiplies its width by the heads.
        embed_dim=shape.dim // shape.heads,
        depth=shape.depth,
        num_heads=shape.heads,
        local_up_to_layer=shape.local,
        **common,
    )


def set_drop_path(model: nn.Module, share: float) -> None:
    """Let every residual branch of a timm model be skipped by the same share of samples."""
    for block in model.modules():
        for name in {"drop_path", "drop_path1", "drop_path2"} & dict(block.named_children()).keys():
            setattr(block, name, DropPath(share) if share > 0 else nn.Identity())


def _check_shape(image_size: int, shape: Shape, drop_path: float) -> None:
    numbers = {"data.size": image_size, "model.patch": shape.patch, "model.dim": shape.dim, "model.depth": shape.depth}
    for key, value in numbers.items():
        if value < 1:
            raise DnaError(f"{key} {value}: at least 1 is needed")
    check_heads(shape.dim, shape.heads, "model.dim", "model.heads")
    if image_size % shape.patch:
        nearest = max(1, round(image_size / shape.patch)) * shape.patch
        raise DnaError(f"data.size {image_size} is not a multiple of model.patch {shape.patch}: {nearest} would be")
    if not 0 <= drop_path < 1:
        raise DnaError(f"model.drop_path {drop_path}: a share from 0 up to, not including, 1 is needed")
