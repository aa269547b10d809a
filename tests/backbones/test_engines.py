"""Patterns in image models: where the prefix is, what is kept, which engine runs."""

import pytest
import timm
import torch

from dna_suite.attention import engines
from dna_suite.backbones.cost import count_multiply_adds
from dna_suite.backbones.engines import grouped_engines
from dna_suite.backbones.hosts import replace_attention
from dna_suite.backbones.images import build_image_model
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec

FIBOTTENTION = AttentionSpec("dna", "fibottention")
NARROW = AttentionSpec("dna", "fibottention", options={"window_min": 4, "window_max": 12})


def build(backbone="vit_digits", size="tiny", attention=NARROW, image_size=32, **options):
    return build_image_model(backbone, size=size, attention=attention, num_classes=3, image_size=image_size, **options)


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(engines, "count_threads", lambda: 2)


def test_the_shares_at_the_paper_setting(two_threads):
    with torch.device("meta"):
        net = build("vit_base", "paper", FIBOTTENTION, 224)
    assert grouped_engines(net, "cpu") == [
        "12 x dna+fibottention: dense, masked on cpu at 197 tokens, keeps 1.99 % of patch pairs, 2.99 % with prefix tokens"
    ]


def test_large_pictures_run_on_offsets(two_threads):
    with torch.device("meta"):
        net = build("vit_base", "paper", AttentionSpec("dna", "fibottention", layers="2:"), 448)
    tail = "at 785 tokens, keeps 1.15 % of patch pairs, 1.40 % with prefix tokens"
    assert grouped_engines(net, "cpu") == [f"10 x dna+fibottention: offsets on cpu {tail}"]
    assert grouped_engines(net, "cuda") == [f"10 x dna+fibottention: dense, masked on cuda {tail}"]
    assert grouped_engines(net, "cpu", compiled=True) == [f"10 x dna+fibottention: dense, masked on cpu {tail}"]


def test_a_dense_model_has_no_line():
    assert grouped_engines(build(attention=AttentionSpec("dna")), "cpu") == []


def test_kept_pairs_only_are_counted_as_cost():
    with torch.device("meta"):
        dense = count_multiply_adds(build("vit_base", "paper", AttentionSpec(), 224), 224)
        sparse = count_multiply_adds(build("vit_base", "paper", AttentionSpec(pattern="fibottention"), 224), 224)
    # 12 layers, two products of 64 channels; 13,908 of 12 x 197^2 pairs, the class token's among them.
    assert dense - sparse == 12 * 2 * 64 * (12 * 197**2 - 13_908)


@pytest.mark.parametrize(("backbone", "prefix"), [("vit_tiny", 1), ("deit_tiny_distilled", 2)])
def test_class_and_distillation_tokens_are_the_prefix(backbone, prefix):
    net = build(backbone, image_size=64)
    assert [net.get_submodule(site.path).pattern.prefix for site in net.sites] == [prefix] * 2
    assert [net.get_submodule(site.path).pattern.layer for site in net.sites] == [0, 1]
    out = net.eval()(torch.randn(2, 3, 64, 64))
    assert out.shape == (2, 3)


def test_register_tokens_are_prefix_too():
    net = timm.create_model(
        "vit_tiny_patch16_224", img_size=64, depth=1, reg_tokens=4, num_classes=0, class_token=True, no_embed_class=True
    )
    replace_attention(net, NARROW)
    assert net.blocks[0].attn.pattern.prefix == 5
    assert net(torch.randn(1, 3, 64, 64)).shape == (1, 192)


def test_both_engines_give_one_model():
    net = (
        build(image_size=64, attention=AttentionSpec("dna", "fibottention", options={"mask_mode": "zero_logit"})).double().eval()
    )
    pictures = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    out = []
    for engine in ("dense", "offsets"):
        for block in net.blocks:
            block.attn.pattern.engine = engine
        out.append(net(pictures))
    # float64 rounding through two blocks.
    torch.testing.assert_close(out[1], out[0], rtol=0, atol=1e-12)


def test_pictures_of_another_size_get_another_support():
    net = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1, num_classes=0, dynamic_img_size=True)
    replace_attention(net, AttentionSpec(pattern="fibottention", options={"window_min": 4, "window_max": 12}))
    for side in (64, 96, 64):
        assert net(torch.randn(1, 3, side, side)).shape == (1, 192)
    assert sorted(tokens for tokens, _ in net.blocks[0].attn.pattern._masks) == [17, 37]


def test_dropped_patches_are_refused():
    net = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1, patch_drop_rate=0.5)
    with pytest.raises(DnaError, match="'fibottention' goes by the place of patches in the picture: patch_drop_rate must be 0"):
        replace_attention(net, NARROW)


def test_too_few_patches_for_the_heads_say_how_many_are_needed():
    net = build(image_size=32, attention=FIBOTTENTION)
    with pytest.raises(
        DnaError, match=r"with 3 heads and 16 patches leaves heads 3 \(window 5\) without any key; 18 patches, at most 2"
    ):
        net(torch.randn(1, 3, 32, 32))
