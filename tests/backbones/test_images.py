"""Image models: shapes of the catalogue, overrides, and mistakes told in the recipe's words."""

import pytest
import torch
from timm.layers import DropPath

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.backbones.images import build_image_model
from dna_suite.catalogue import BACKBONES
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec

DEFAULTS = {"size": "tiny", "attention": AttentionSpec(), "num_classes": 10, "image_size": 32}


def build(backbone="vit_digits", **kwargs):
    return build_image_model(backbone, **{**DEFAULTS, **kwargs})


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_tiny_shape_of_every_backbone_runs(backbone):
    model = build(backbone, attention=AttentionSpec("dna")).eval()
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    shape = BACKBONES[backbone]["tiny"]
    assert (model.embed_dim, model.patch_embed.patch_size) == (shape.dim, (shape.patch, shape.patch))
    assert [site.operator for site in model.sites] == ["dna"] * shape.depth
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    assert (layers[0].heads, layers[0].head_dim) == (shape.heads, shape.dim // shape.heads)
    assert model.attention == AttentionSpec("dna")


def test_overrides_replace_the_backbones_numbers():
    model = build(dim=60, depth=3, heads=5, patch=4, channels=1, num_classes=7, image_size=28)
    assert model(torch.zeros(1, 1, 28, 28)).shape == (1, 7)
    assert model.pos_embed.shape == (1, 50, 60)
    layers = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    assert [(layer.heads, layer.head_dim) for layer in layers] == [(5, 12)] * 3


def test_the_paper_shape_of_every_vit_has_its_prefix_tokens():
    for backbone, tokens in {"vit_base": 1, "deit_base_distilled": 2}.items():
        assert build(backbone).num_prefix_tokens == tokens


def test_swin_takes_the_numbers_of_its_first_stage():
    model = build("swin_tiny", dim=32, heads=2, patch=2)
    stages = [[(block.attn.heads, block.attn.proj.out_features) for block in stage.blocks] for stage in model.layers]
    assert stages == [[(2, 32), (2, 32)], [(4, 64)]]
    assert [block.shift_size for block in model.layers[0].blocks] == [(0, 0), (3, 3)]
    assert model.layers[0].blocks[0].attn.window_size == (7, 7)
    assert [site.path for site in model.sites] == ["layers.0.blocks.0.attn", "layers.0.blocks.1.attn", "layers.1.blocks.0.attn"]


def test_convit_gates_its_first_blocks():
    model = build("convit_tiny", depth=3, heads=3)
    assert [site.host for site in model.sites] == ["GPSA", "MHSA", "MHSA"]
    assert (model.embed_dim, model.blocks[0].attn.heads, model.local_up_to_layer) == (48, 3, 1)


def test_drop_path_rises_linearly():
    model = build(depth=5, drop_path=0.2)
    rates = [getattr(block.drop_path1, "drop_prob", 0.0) for block in model.blocks]
    # timm keeps the rates in float32.
    assert rates == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2], abs=1e-7)


@pytest.mark.parametrize("backbone", ["vit_base", "deit_base_distilled", "swin_base", "convit_base"])
def test_drop_path_may_be_the_same_in_every_block(backbone):
    # The released DnA code has one rate in all blocks.
    def branches(shape):
        model = build(backbone, drop_path=0.15, drop_path_shape=shape)
        return [module.drop_prob for module in model.modules() if isinstance(module, DropPath)]

    per_block = 1 if "convit" in backbone else 2
    blocks = BACKBONES[backbone]["tiny"].depth
    assert branches("constant") == [0.15] * blocks * per_block
    # Rising, the first block has none, and the last the rate; timm keeps the rates in float32.
    assert branches("rising")[-1] == pytest.approx(0.15, abs=1e-7)
    assert len(branches("rising")) == (blocks - 1) * per_block


def test_constant_drop_path_skips_samples_of_the_first_block_too():
    torch.manual_seed(0)
    model = build(depth=1, drop_path=0.5, drop_path_shape="constant").train()
    block, x = model.blocks[0], torch.ones(400, 2, 48)
    block.mlp = torch.nn.Identity()
    block.norm2 = torch.nn.Identity()
    block.attn.forward = lambda x, **_: torch.ones_like(x)
    # Each branch is left out or doubled: 1, then + 0 or 2, then + 0 or twice the sum.
    sums = block(x)[:, 0, 0]
    assert set(sums.tolist()) == {1.0, 3.0, 9.0}
    # A quarter of 400 has both branches, with a deviation of 9: five of them.
    assert 55 <= (sums == 9).sum() <= 145


def test_no_drop_path_is_none_in_either_shape():
    model = build(drop_path=0.0, drop_path_shape="constant")
    assert not any(isinstance(module, DropPath) for module in model.modules())


def test_the_class_token_may_have_no_position():
    model = build(class_token_position=False)
    assert model.pos_embed.shape == (1, 16, 48)
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_softmax_and_dna_share_every_common_weight_under_one_seed():
    states = []
    for name in ("softmax", "dna"):
        torch.manual_seed(3)
        states.append(build(attention=AttentionSpec(name)).state_dict())
    softmax, dna = states
    assert all(torch.equal(tensor, dna[key]) for key, tensor in softmax.items())
    assert {key.split(".")[3] for key in dna.keys() - softmax.keys()} == {"q_neg", "v_neg", "operator"}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"heads": 12, "dim": 100}, r"model\.heads 12 does not divide model\.dim 100: 5, 10 would"),
        ({"heads": 0, "dim": 96}, r"model\.heads 0 does not divide model\.dim 96"),
        ({"heads": 7, "dim": 96}, r"model\.heads 7 does not divide model\.dim 96: 6, 8 would"),
        ({"image_size": 30}, r"data\.size 30 is not a multiple of model\.patch 8: 32 would be"),
        ({"image_size": 0}, r"data\.size 0: at least 1"),
        ({"depth": 0}, r"model\.depth 0: at least 1"),
        ({"drop_path": 1.0}, r"model\.drop_path 1\.0: a share from 0"),
        ({"attention": AttentionSpec("dna", layers="5")}, r"attention\.layers '5': the model has layers 0 to 1"),
        ({"backbone": "deit_tiny_distilled", "class_token_position": False}, r"class_token_position false is for plain ViTs"),
        ({"backbone": "convit_tiny", "class_token_position": False}, r"convit_tiny has no position for a class token"),
        ({"backbone": "swin_tiny", "depth": 3}, r"model\.depth 3: swin_tiny has none; depth is that of its stages"),
        ({"backbone": "swin_tiny", "heads": 5}, r"model\.heads 5 does not divide model\.dim 24: 4, 6 would"),
        ({"backbone": "swin_tiny", "image_size": 30}, r"data\.size 30 is not a multiple of model\.patch 8: 32 would be"),
    ],
)
def test_impossible_shapes_are_told_with_their_keys(kwargs, message):
    with pytest.raises(DnaError, match=message):
        build(**kwargs)


def test_unknown_names_are_told_with_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown model.drop_path_shape 'risng'; did you mean 'rising'"):
        build(drop_path_shape="risng")
    with pytest.raises(UnknownName, match="unknown backbone 'vit_bse'; did you mean 'vit_base'"):
        build("vit_bse")
    with pytest.raises(UnknownName, match="unknown size of backbone 'vit_base' 'papr'; did you mean 'paper'"):
        build("vit_base", size="papr")
