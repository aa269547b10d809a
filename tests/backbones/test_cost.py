"""Parameters and multiply-adds of the paper's models, exactly, on the meta device (DnA Tables 6, 7 and 12)."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dna_suite.attention.multihead import written_out
from dna_suite.backbones.cost import count_multiply_adds, count_parameters
from dna_suite.backbones.images import build_image_model
from dna_suite.spec import AttentionSpec

SOFTMAX, ONE_MORE, DNA = 17_582_740_224, 19_334_747_904, 21_086_755_584
# Half as much again in every projection and map product: 4 x 384 x 768 a token, 2 x 12 x 32 a pair, in 12 layers.
WIDER = SOFTMAX + 12 * (4 * 384 * 768 * 197 + 2 * 12 * 32 * 197**2)
# 25 norms of 197 x 768 numbers at five each, which torch's counter leaves out.
NORMS = 25 * 5 * 197 * 768


def build(backbone, name, **kwargs):
    spec = AttentionSpec(name)
    with torch.device("meta"):
        return build_image_model(backbone, size="paper", attention=spec, num_classes=1000, image_size=224, **kwargs)


@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds"),
    [
        ("softmax", 86_567_656, SOFTMAX),
        ("dna-shared-plain", 86_567_656, SOFTMAX),
        ("dna-shared", 86_567_800, SOFTMAX),
        ("dna-q", 93_654_904, ONE_MORE),
        ("dna-v", 93_654_904, ONE_MORE),
        ("dna", 100_742_008, DNA),
        ("softmax-wide", 100_737_256, WIDER),
        ("softmax-value", 100_732_648, WIDER),
        ("differential", 86_569_960, SOFTMAX),
        ("cog", 86_567_656, SOFTMAX),
    ],
)
def test_vit_base(name, parameters, multiply_adds):
    model = build("vit_base", name)
    assert count_parameters(model) == parameters
    assert count_multiply_adds(model, 224) == multiply_adds
    with FlopCounterMode(display=False) as counter, written_out(model), torch.no_grad():
        model(torch.empty(1, 3, 224, 224, device="meta"))
    # torch counts a multiplication and an addition as two.
    assert counter.get_total_flops() == 2 * (multiply_adds - NORMS)
    if name == "softmax":
        assert counter.get_total_flops() == 2 * 17_563_828_224


@pytest.mark.parametrize(
    ("backbone", "name", "position", "parameters"),
    [
        ("vit_base", "softmax", False, 86_566_888),
        ("vit_base", "dna", False, 100_741_240),
        ("vit_tiny", "dna", False, 6_606_604),
        ("vit_small", "dna-q", True, 23_824_816),
        ("deit_base_distilled", "softmax", True, 87_338_192),
        ("deit_small_distilled", "dna", True, 25_984_664),
        ("deit_tiny_distilled", "dna-v", True, 6_355_508),
        ("vit_tiny", "softmax", False, 5_717_224),
        ("swin_tiny", "softmax", True, 28_288_354),
        ("swin_tiny", "dna", True, 32_610_412),
        ("convit_tiny", "softmax", True, 5_710_512),
        ("convit_tiny", "dna", True, 6_595_296),
        ("convit_small", "dna-shared", True, 27_777_430),
        ("convit_small", "dna-q", True, 30_016_918),
    ],
)
def test_parameters_of_other_shapes(backbone, name, position, parameters):
    assert count_parameters(build(backbone, name, class_token_position=position)) == parameters


# The five-fold count of the norms, which torch's counter leaves out: the width of each times its tokens.
SWIN_NORMS = 5 * sum(
    2 * blocks * side**2 * dim for blocks, side, dim in ((2, 56, 128), (2, 28, 256), (18, 14, 512), (2, 7, 1024))
)
SWIN_NORMS += 5 * (56**2 * 128 + 28**2 * 512 + 14**2 * 1024 + 7**2 * 2048 + 7**2 * 1024)
CONVIT_NORMS = 5 * 768 * (10 * 2 * 196 + 2 * 2 * 197 + 197)


@pytest.mark.parametrize(
    ("backbone", "name", "norms", "parameters", "multiply_adds"),
    [
        ("swin_base", "softmax", SWIN_NORMS, 87_768_224, 15_467_826_176),
        ("swin_base", "dna", SWIN_NORMS, 101_751_832, 18_238_946_304),
        ("convit_base", "softmax", CONVIT_NORMS, 86_540_040, 17_524_287_744),
        ("convit_base", "dna", CONVIT_NORMS, 100_696_008, 21_010_470_144),
    ],
)
def test_windows_and_gates(backbone, name, norms, parameters, multiply_adds):
    model = build(backbone, name)
    assert count_parameters(model) == parameters
    assert count_multiply_adds(model, 224) == multiply_adds
    with FlopCounterMode(display=False) as counter, written_out(model), torch.no_grad():
        model(torch.empty(1, 3, 224, 224, device="meta"))
    assert counter.get_total_flops() == 2 * (multiply_adds - norms)


@pytest.mark.parametrize(
    ("backbone", "name"),
    [
        ("swin_tiny", "softmax-wide"),
        ("swin_tiny", "dna-q"),
        ("convit_tiny", "dna"),
        ("convit_tiny", "softmax-value"),
        ("convit_tiny", "differential"),
        ("convit_tiny", "cog"),
    ],
)
def test_operators_in_windows_and_gates_are_counted_as_torch_counts_them(backbone, name):
    with torch.device("meta"):
        models = [
            build_image_model(backbone, size="tiny", attention=AttentionSpec(each), num_classes=10, image_size=64)
            for each in ("softmax", name)
        ]
    found = []
    for model in models:
        with FlopCounterMode(display=False) as counter, written_out(model), torch.no_grad():
            model(torch.empty(1, 3, 64, 64, device="meta"))
        found.append((counter.get_total_flops(), 2 * count_multiply_adds(model, 64)))
    # Norms, which torch leaves out, are the same in both.
    assert found[1][0] - found[0][0] == found[1][1] - found[0][1]


def test_counting_leaves_the_model_as_it_was():
    model = build_image_model("vit_digits", size="tiny", attention=AttentionSpec("dna"), num_classes=10, image_size=32)
    model.train()
    model.blocks[0].eval()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    # The table's 17 tokens by hand: patches, two blocks of five projections and proj, four products, MLP, five norms, head.
    blocks = 2 * (17 * 48 * 48 * 6 + 4 * 17 * 17 * 48 + 2 * 17 * 48 * 192)
    assert count_multiply_adds(model, 32) == 16 * 192 * 48 + blocks + 5 * 5 * 17 * 48 + 48 * 10
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert model.training
    assert not model.blocks[0].training
    assert not any(module._forward_hooks for module in model.modules())


def test_counting_compiles_nothing():
    compiled = []
    model = build_image_model("vit_digits", size="tiny", attention=AttentionSpec(), num_classes=10, image_size=32)
    expected = count_multiply_adds(model, 32)
    model.compile(backend=lambda graph, _: compiled.append(graph) or graph.forward)
    assert count_multiply_adds(model, 32) == expected
    assert compiled == []


def test_frozen_parameters_are_not_counted():
    model = build_image_model("vit_digits", size="tiny", attention=AttentionSpec(), num_classes=10, image_size=32)
    everything = count_parameters(model)
    model.head.requires_grad_(False)
    assert count_parameters(model) == everything - 490
