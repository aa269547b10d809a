"""Injection into timm: weights, outputs, masks and features of the host are kept."""

import inspect

import pytest
import timm
import torch
from timm.layers.attention import Attention
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.backbones.hosts import Site, replace_attention
from dna_suite.catalogue import OPERATORS
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec

TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 3, "num_classes": 5}
# Float64 sums of 48 products, taken over separate matrices instead of one packed matrix.
TOLERANCE = 1e-12


def host(build=VisionTransformer, seed=0, **kwargs):
    torch.manual_seed(seed)
    model = build(**{**TINY, **kwargs}).double().eval()
    for parameter in model.parameters():
        # timm starts biases and the head at zero: a lost one would not be seen.
        nn.init.normal_(parameter, std=0.1)
    return model


def pictures(side=32):
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def difference(a, b):
    return (a - b).abs().max().item()


@pytest.mark.parametrize("build", [VisionTransformer, VisionTransformerDistilled])
def test_softmax_keeps_the_host_and_its_weights_load_strictly(build):
    original, replaced, other = host(build), host(build), host(build, seed=1)
    sites = replace_attention(replaced, AttentionSpec())
    assert sites == [Site(f"blocks.{layer}.attn", "Attention", layer, "softmax") for layer in range(3)]
    assert not any(isinstance(module, Attention) for module in replaced.modules())
    assert difference(replaced(pictures()), original(pictures())) <= TOLERANCE
    replace_attention(other, AttentionSpec())
    assert difference(other(pictures()), original(pictures())) > 0.1
    other.load_state_dict(original.state_dict(), strict=True)
    assert difference(other(pictures()), original(pictures())) <= TOLERANCE


@pytest.mark.parametrize("name", ["dna", "dna-q", "dna-v", "dna-shared"])
def test_alpha_zero_keeps_the_function_of_the_host(name):
    original, replaced = host(), host()
    replace_attention(replaced, AttentionSpec(name, options={"alpha": 0.0}))
    assert difference(replaced(pictures()), original(pictures())) <= TOLERANCE


def test_new_streams_start_as_the_host_does_and_the_rest_is_kept():
    original, replaced = host(embed_dim=192), host(embed_dim=192)
    replace_attention(replaced, AttentionSpec("dna"))
    attention = replaced.blocks[0].attn
    assert torch.equal(attention.v.weight, original.blocks[0].attn.qkv.weight[384:])
    for stream in (attention.q_neg, attention.v_neg):
        # 36,864 draws: their deviation is within 2 % of 0.02.
        assert stream.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert stream.bias.eq(0).all()


def test_other_layers_keep_softmax():
    model = host()
    sites = replace_attention(model, AttentionSpec("dna-q", layers="1:-1"))
    assert [site.operator for site in sites] == ["softmax", "dna-q", "softmax"]
    assert [hasattr(block.attn, "q_neg") for block in model.blocks] == [False, True, False]


def variants():
    """Host layers with every part that this timm's Attention knows."""
    known = inspect.signature(Attention).parameters
    wanted = [
        {"qk_norm": True},
        {"scale_norm": True},
        {"qkv_bias": False, "proj_bias": False},
        {"attn_head_dim": 24, "dim_out": 40},
        {"gated": True, "scale_norm": True},
    ]
    return [kwargs for kwargs in wanted if known.keys() >= kwargs.keys()]


@pytest.mark.parametrize("kwargs", variants(), ids="+".join)
def test_every_part_of_the_host_is_kept(kwargs):
    torch.manual_seed(0)
    layer = Attention(48, num_heads=3, **{"qkv_bias": True, "norm_layer": nn.LayerNorm, **kwargs}).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    model = nn.Sequential(layer)
    x = torch.randn(2, 6, 48, dtype=torch.float64)
    expected, tensors = model(x), sum(p.numel() for p in model.parameters())
    replace_attention(model, AttentionSpec())
    # Weights of deviation 1 over 48 channels: outputs of several hundred.
    assert difference(model(x), expected) <= TOLERANCE * expected.abs().max()
    assert sum(p.numel() for p in model.parameters()) == tensors


def test_scale_dropout_and_mode_of_the_host_are_kept():
    torch.manual_seed(0)
    layer = Attention(48, num_heads=3, attn_drop=0.2, proj_drop=0.3).double().eval()
    layer.scale, layer.fused_attn = 0.7, False
    model, x = nn.Sequential(layer), torch.randn(2, 6, 48, dtype=torch.float64)
    expected = model(x)
    replace_attention(model, AttentionSpec())
    assert difference(model(x), expected) <= TOLERANCE
    assert (model[0].attn_drop, model[0].proj_drop.p, model[0].training) == (0.2, 0.3, False)


def test_a_part_that_is_not_known_is_refused_by_name():
    layer = Attention(48, num_heads=3)
    layer.rotary = nn.Linear(2, 2)
    with pytest.raises(DnaError, match="cannot replace an attention layer with rotary"):
        replace_attention(nn.Sequential(layer), AttentionSpec())


def layer_pair(name="softmax"):
    torch.manual_seed(0)
    layer = Attention(48, num_heads=3, qkv_bias=True).double()
    layer.fused_attn = False
    model = nn.Sequential(layer)
    replace_attention(model, AttentionSpec(name))
    return layer, model[0], torch.randn(2, 5, 48, dtype=torch.float64)


@pytest.mark.parametrize("shape", [(5, 5), (2, 1, 1, 5), (2, 3, 5, 5)])
def test_masks_of_the_host_mean_the_same(shape):
    layer, replaced, x = layer_pair()
    allowed = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.7
    allowed[..., 0] = True
    additive = torch.randn(shape, dtype=torch.float64).masked_fill(~allowed, float("-inf"))
    blocked = torch.zeros(shape, dtype=torch.float64).masked_fill(~allowed, float("-inf"))
    assert difference(replaced(x, attn_mask=additive), layer(x, attn_mask=additive)) <= TOLERANCE
    # Older timm adds a boolean mask to the logits instead of blocking: the additive form means the same in all of them.
    assert difference(replaced(x, attn_mask=allowed), layer(x, attn_mask=blocked)) <= TOLERANCE
    assert difference(replaced(x, allowed), replaced(x)) > 1e-4


def test_causal_and_mask_hold_together():
    layer, replaced, x = layer_pair()
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:, 1] = False
    as_bias = torch.zeros(5, 5, dtype=torch.float64)
    assert difference(replaced(x, is_causal=True), layer(x, attn_mask=as_bias.masked_fill(~causal, -torch.inf))) <= TOLERANCE
    both = layer(x, attn_mask=as_bias.masked_fill(~(causal & mask), -torch.inf))
    assert difference(replaced(x, attn_mask=mask, is_causal=True), both) <= TOLERANCE


def test_softmin_gives_no_weight_to_what_an_additive_mask_blocks():
    _, replaced, x = layer_pair("dna")
    additive = torch.zeros(5, 5, dtype=torch.float64)
    additive[:, 3] = float("-inf")
    expected = replaced(x, attn_mask=additive)
    x = x.clone()
    x[:, 3] = 100.0
    kept = [0, 1, 2, 4]
    assert torch.equal(replaced(x, attn_mask=additive)[:, kept], expected[:, kept])


def test_no_site_is_an_error_that_names_the_classes_seen():
    with pytest.raises(DnaError, match=r"no attention layer to replace: timm's Attention.*, MHSA are known, .*Block.*ResNet"):
        replace_attention(timm.create_model("resnet18"), AttentionSpec("dna"))
    with pytest.raises(DnaError, match="the model has torch classes"):
        replace_attention(nn.Linear(2, 2), AttentionSpec())


def test_an_unknown_attention_leaves_the_model_alone():
    model = host()
    with pytest.raises(UnknownName):
        replace_attention(model, AttentionSpec("dnaa"))
    with pytest.raises(DnaError, match="the model has layers 0 to 2"):
        replace_attention(model, AttentionSpec("dna", layers="7"))
    assert not any(isinstance(module, MultiHeadAttention) for module in model.modules())


@pytest.mark.parametrize("name", OPERATORS)
def test_vit_tiny_trains_with_checkpointing_and_serves_other_sizes_and_features(name):
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5, dynamic_img_size=True)
    replace_attention(model, AttentionSpec(name))
    x = torch.randn(2, 3, 32, 32)

    def gradients():
        model.zero_grad()
        model(x).square().sum().backward()
        return {key: parameter.grad.clone() for key, parameter in model.named_parameters()}

    plain = gradients()
    model.set_grad_checkpointing()
    checkpointed = gradients()
    assert all(torch.equal(plain[key], checkpointed[key]) for key in plain)
    assert all(plain[key].abs().sum() > 0 for key in plain if key != "cls_token" and "k.bias" not in key)
    model.eval()
    assert model(torch.randn(1, 3, 48, 64)).shape == (1, 5)
    features = model.forward_intermediates(x, intermediates_only=True)
    assert [f.shape for f in features] == [(2, 192, 2, 2)] * 2
    assert not torch.equal(features[0], features[1])


@pytest.mark.parametrize("backbone", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224"])
def test_a_features_only_model_takes_another_attention(backbone):
    kwargs = {"img_size": 32, "depth": 2, "features_only": True, "out_indices": (0, 1), "dynamic_img_size": True}
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(timm.create_model(backbone, **kwargs).double().eval())
    original, model = models
    sites = replace_attention(model, AttentionSpec("dna", options={"alpha": 0.0}))
    assert [site.path for site in sites] == ["model.blocks.0.attn", "model.blocks.1.attn"]
    for side in (32, 48):
        pairs = zip(model(pictures(side)), original(pictures(side)), strict=True)
        assert all(a.shape == (2, 192, side // 16, side // 16) and difference(a, b) <= TOLERANCE for a, b in pairs)


@pytest.mark.parametrize(("build", "prefix"), [(VisionTransformer, 1), (VisionTransformerDistilled, 2)])
def test_a_pattern_leaves_the_prefix_tokens_dense(build, prefix):
    model = host(build)
    replace_attention(model, AttentionSpec("dna", pattern="longformer"))
    assert [block.attn.pattern.prefix for block in model.blocks] == [prefix] * 3
    mask = model.blocks[0].attn.pattern.mask(16 + prefix, torch.device("cpu")).reshape(-1, 16 + prefix, 16 + prefix)[0]
    assert mask[:prefix].all()
    assert mask[:, :prefix].all()
    assert not mask.all()
    features = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, features_only=True, out_indices=(0,))
    replace_attention(features, AttentionSpec("dna", pattern="longformer"))
    assert [module.pattern.prefix for module in features.modules() if isinstance(module, MultiHeadAttention)] == [1]


def test_projections_that_an_operator_makes_wider_start_afresh():
    original, model = host(), host()
    replace_attention(model, AttentionSpec("softmax-value"))
    attention, packed = model.blocks[0].attn, original.blocks[0].attn.qkv.weight
    assert torch.equal(attention.q.weight, packed[:48])
    assert torch.equal(attention.k.weight, packed[48:96])
    assert attention.v.weight.shape == (96, 48)
    # The host's weights have deviation 0.1.
    assert attention.v.weight.std() < 0.03
    assert attention.proj.weight.std() < 0.03
