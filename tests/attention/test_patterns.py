"""The patterns: what they keep, what they refuse, and that they draw from nothing global."""

import copy
import pickle
import random

import pytest
import torch

from dna_suite.attention.options import check_attention, operator_options, pattern_options
from dna_suite.attention.patterns import PATTERN_CLASSES, build_pattern
from dna_suite.attention.record import record_maps
from dna_suite.attention.reference import compute_reference
from dna_suite.attention.registry import build_attention
from dna_suite.catalogue import CHOICES, LIMITS, OPERATORS, PATTERNS
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec

from .pattern_cases import GOLDEN, make_pattern

CPU = torch.device("cpu")
# Small enough for 16 patches and 3 heads.
SMALL = {"fibottention": {"window_min": 4, "window_max": 12}, "random": {"keep": 0.2}}


def build_layer(name="softmax", pattern="fibottention", *, prefix=1, layer=1, attn_drop=0.0, **options):
    spec = AttentionSpec(name, pattern, options={**SMALL.get(pattern, {}), **options})
    made = build_attention(spec, dim=12, heads=3, layer=layer, depth=4, prefix=prefix, attn_drop=attn_drop).double()
    with torch.no_grad():
        for stream in made.streams:
            made.get_submodule(stream).weight.normal_()
    return made


def patch_density(pattern, patches):
    """Share of kept pairs of patches, percent."""
    mask = pattern.mask(patches + 1, CPU).expand(1, pattern.heads, -1, -1)
    return 100 * mask[0, :, 1:, 1:].double().mean().item()


def test_every_pattern_of_the_catalogue_has_a_class_that_takes_its_options():
    assert PATTERN_CLASSES.keys() == PATTERNS.keys()
    for name, entry in PATTERNS.items():
        made = build_pattern(AttentionSpec(pattern=name, options=dict(entry.options)), heads=2, layer=0)
        assert made.diagonal == entry.diagonal
        assert all(
            getattr(made, option) == default for option, default in entry.options.items() if option not in ("shuffle", "seed")
        )


def test_option_names_of_operators_and_patterns_do_not_clash():
    operator_names = {option for entry in OPERATORS.values() for option in entry.options}
    pattern_names = {option for entry in PATTERNS.values() for option in entry.options}
    assert not operator_names & pattern_names
    assert (CHOICES.keys() | LIMITS.keys()) <= pattern_names


def test_operator_and_pattern_options_stand_together():
    spec = AttentionSpec("dna", "bigbird", options={"alpha": 0.25, "window": 3})
    check_attention(spec)
    assert operator_options(spec) == {"alpha": 0.25}
    assert pattern_options(spec) == {"window": 3, "random_keys": 1, "seed": 0, "mask_mode": "neg_inf"}
    with pytest.raises(UnknownName, match=r"option of attention 'dna\+bigbird' 'windov'; did you mean 'window'"):
        check_attention(AttentionSpec("dna", "bigbird", options={"windov": 1}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_min": 0}, "window_min is 0: from 1 to"),
        ({"window_min": True}, "window_min is True: a int is needed"),
        ({"window_min": 5.0}, r"window_min is 5\.0: a int is needed"),
        ({"window_max": -1}, "window_max is -1: from 0 to"),
        ({"seed": -1}, "seed is -1: from 0 to"),
        ({"variant": "wythof"}, "unknown attention.options.variant 'wythof'; did you mean 'wythoff'"),
        ({"mask_mode": "zero"}, "unknown attention.options.mask_mode 'zero'"),
        ({"empty_heads": "keep"}, "unknown attention.options.empty_heads 'keep'"),
        ({"engine": "flex"}, "unknown attention.options.engine 'flex'"),
    ],
)
def test_values_outside_their_range_are_refused_without_torch(options, message):
    with pytest.raises(DnaError, match=message):
        check_attention(AttentionSpec(pattern="fibottention", options=options))


def read_family(family):
    """Pattern and options that a golden family without heads names."""
    kind, window = family["id"].split("_N")[0], family["w"]
    if kind == "fibonacci_1_2":
        return "fibonacci", {"window": window}
    if kind.startswith("longformer"):
        return "longformer", {"window": window, "self_pairs": kind.endswith("_self")}
    if kind.startswith("dilated"):
        return "dilated", {"dilation": 2, "window": window, "self_pairs": kind.endswith("_self")}
    number = int("".join(filter(str.isdigit, kind)))
    return (
        ("exponential", {"base": number, "window": window})
        if "base" in kind
        else ("dilated", {"dilation": number, "window": window})
    )


@pytest.mark.parametrize("family", GOLDEN["simple_families"], ids=lambda family: family["id"])
def test_golden_sets_with_one_sequence_for_all_heads(family):
    name, options = read_family(family)
    if not family["offsets"]:
        with pytest.raises(DnaError, match=f"window {family['w']} keeps no pair: at least the dilation"):
            make_pattern(name, **options)
        return
    patches = family["N"]
    pattern = make_pattern(name, heads=2, **options)
    assert [list(head) for head in pattern.distances(patches)] == [family["offsets"]] * 2
    assert pattern.count_pairs(patches + 1) == 2 * (family["kept_patch_pairs"] + 2 * patches + 1)


@pytest.mark.parametrize(
    ("name", "options", "sparsity"),
    [
        ("longformer", {}, 98.475),
        ("longformer", {"window": 4, "self_pairs": False}, 95.97),
        ("longformer", {"window": 5, "self_pairs": False}, 94.98),
        ("bigbird", {}, 97.964),
        ("random", {}, 98.52),
        ("dilated", {}, 98.990),
        ("dilated", {"self_pairs": True}, 98.480),
        ("exponential", {}, 93.52),
        ("fibonacci", {}, 90.73),
    ],
)
def test_sparsity_at_196_patches_is_that_of_the_comparison(name, options, sparsity):
    # As many digits as are stated.
    digits = len(str(sparsity).split(".")[1])
    assert 100 - patch_density(make_pattern(name, **options), 196) == pytest.approx(sparsity, abs=0.6 * 10**-digits)


def test_heads_that_keep_the_same_share_one_mask():
    assert make_pattern("longformer").mask(17, CPU).shape == (1, 1, 17, 17)
    assert make_pattern("random", keep=0.2).mask(17, CPU).shape == (1, 3, 17, 17)


def test_bigbird_rows_hold_their_band_and_as_many_keys_more_as_asked():
    mask = make_pattern("bigbird", window=2, random_keys=3).mask(21, CPU)[0, :, 1:, 1:]
    place = torch.arange(20)
    band = (place[:, None] - place).abs() <= 2
    assert mask[:, band].all()
    assert mask.sum(dim=-1).equal((band.sum(dim=-1) + 3).expand(3, -1))


def test_random_keeps_exactly_its_count_in_every_head():
    mask = make_pattern("random", keep=0.1).mask(21, CPU)[0, :, 1:, 1:]
    assert mask.sum(dim=(1, 2)).tolist() == [40] * 3


@pytest.mark.parametrize("name", ["bigbird", "random"])
def test_draws_differ_between_heads_layers_and_seeds_and_repeat_themselves(name):
    def draw(**which):
        return make_pattern(name, **which).mask(41, CPU)

    first = draw()
    assert first.equal(draw())
    assert not first[:, 0].equal(first[:, 1])
    for other in (draw(layer=1), draw(seed=1), draw(seed=2), draw(layer=1, seed=1)):
        assert not other.equal(first)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bigbird", {"window": 16}, "window 16 with 16 patches: from 0 to 15"),
        ("bigbird", {"window": 6, "random_keys": 4}, "random_keys 4 with 16 patches, window 6: from 0 to 3"),
        ("random", {"keep": 0.0001}, "keep 0.0001 keeps none of 256 pairs: at least 0.0039 is needed"),
        ("dilated", {"dilation": 16, "window": 16}, "no kept distance is below 16"),
    ],
)
def test_a_pattern_that_cannot_stand_says_why(name, options, message):
    with pytest.raises(DnaError, match=message):
        make_pattern(name, **options).mask(17, CPU)


@pytest.mark.parametrize(
    ("name", "options", "fits"),
    [
        ("fibottention", {"heads": 4, "window_min": 4, "window_max": 16}, 18),
        ("random", {"keep": 0.02}, None),
        ("dilated", {"dilation": 9, "window": 9}, 18),
    ],
)
def test_a_row_without_any_key_needs_a_class_token(name, options, fits):
    made = make_pattern(name, prefix=0, **options)
    with pytest.raises(DnaError, match="without any key, and there is no class token"):
        made.mask(17, CPU)
    assert make_pattern(name, prefix=1, **options).mask(18, CPU).any(dim=-1).all()
    assert make_pattern(name, prefix=0, mask_mode="zero_logit", **options).mask(17, CPU).shape[-1] == 17
    if fits:
        assert made.mask(fits, CPU).any(dim=-1).all()


@pytest.mark.parametrize("prefix", [1, 2, 5])
@pytest.mark.parametrize("name", PATTERNS)
def test_prefix_tokens_attend_and_are_attended_everywhere(name, prefix):
    mask = make_pattern(name, prefix=prefix, **SMALL.get(name, {})).mask(16 + prefix, CPU)
    assert mask[:, :, :prefix].all()
    assert mask[:, :, :, :prefix].all()
    # The prefix does not move the pattern of the patches.
    inner = make_pattern(name, prefix=1, **SMALL.get(name, {})).mask(17, CPU)[:, :, 1:, 1:]
    assert mask[:, :, prefix:, prefix:].equal(inner)


@pytest.mark.parametrize("name", PATTERNS)
def test_global_generators_stay_where_they_are(name):
    import numpy

    before = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state()
    layer = build_layer(pattern=name)
    state = torch.get_rng_state()
    layer(torch.ones(1, 17, 12, dtype=torch.float64))
    assert torch.get_rng_state().equal(state)
    assert make_pattern(name, **SMALL.get(name, {})).mask(17, CPU) is not None
    assert random.getstate() == before[0]
    assert numpy.random.get_state()[1].tolist() == before[1]


@pytest.mark.parametrize("mask_mode", ["neg_inf", "zero_logit"])
@pytest.mark.parametrize("operator", [name for name, entry in OPERATORS.items() if not entry.implementation])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_operator_runs_with_every_pattern(pattern, operator, mask_mode):
    layer = build_layer(operator, pattern, mask_mode=mask_mode)
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    s = layer.project(x)
    wanted = compute_reference(
        operator if not operator.startswith("softmax") else "softmax",
        s,
        scale=layer.scale,
        mask=layer.pattern.mask(17, CPU).expand(1, 3, 17, 17),
        zero_logit=mask_mode == "zero_logit",
        **layer.operator.constants(),
    )
    engines = ["dense", "offsets"] if layer.pattern.diagonal and layer.operator.runs_diagonals else ["dense"]
    for fused in (True, False):
        for engine in engines:
            layer.fused, layer.pattern.engine = fused, engine
            # float64 rounding of sums of 17 terms of size 10.
            torch.testing.assert_close(layer.mix(s, layer.make_scores(s, None, None)), wanted, rtol=0, atol=1e-12)


def test_the_pattern_changes_the_output_and_blocked_pairs_have_weight_zero():
    layer = build_layer("dna")
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    with record_maps(layer) as records:
        sparse = layer(x)
    blocked = ~layer.pattern.mask(17, CPU).expand(2, 3, 17, 17)
    for weights in (records[""].positive, records[""].negative):
        assert (weights[blocked] == 0).all()
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3, 17, dtype=torch.float64))
    layer.pattern = None
    assert (layer(x) - sparse).abs().max() > 1e-3


def test_maps_are_recorded_whatever_engine_runs():
    layer = build_layer("dna")
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    with record_maps(layer) as records:
        layer(x)
        dense = records[""].negative
        layer.pattern.engine = "offsets"
        layer(x)
    assert records[""].negative.equal(dense)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_training_evaluation_copies_and_other_batches_have_one_mask(pattern):
    layer = build_layer(pattern=pattern)
    x = torch.randn(3, 17, 12, dtype=torch.float64)
    trained = layer.train()(x)
    sent = pickle.loads(pickle.dumps(layer))
    for other in (layer.eval(), copy.deepcopy(layer), sent):
        assert other(x).equal(trained)
    # Kernels sum in another order for other batches: float64 rounding.
    torch.testing.assert_close(layer(x[:1]), trained[:1], rtol=0, atol=1e-13)
    assert layer(x[:0]).shape == (0, 17, 12)


def test_the_state_dict_and_the_checkpoint_know_no_mask():
    layer = build_layer()
    names = set(layer.state_dict())
    layer(torch.ones(1, 17, 12, dtype=torch.float64))
    assert set(layer.state_dict()) == names == set(build_layer(pattern=None).state_dict())


def test_a_mask_made_in_inference_mode_serves_training():
    layer = build_layer()
    x = torch.randn(1, 17, 12, dtype=torch.float64)
    with torch.inference_mode():
        layer(x)
    layer(x).sum().backward()


def test_masks_of_few_token_counts_stay():
    made = make_pattern("longformer")
    first = made.mask(10, CPU)
    assert made.mask(10, CPU) is first
    assert [made.mask(tokens, CPU).shape[-1] for tokens in range(11, 15)] == [11, 12, 13, 14]
    assert made.mask(10, CPU) is not first


def test_another_token_count_makes_another_support():
    layer = build_layer(pattern="exponential")
    for tokens in (17, 26, 17):
        assert layer(torch.randn(1, tokens, 12, dtype=torch.float64)).shape == (1, tokens, 12)
    assert layer.pattern.distances(16) == ((1, 2, 4),) * 3
    assert layer.pattern.distances(25) == ((1, 2, 4, 8),) * 3


def test_a_layer_index_is_never_taken_for_granted():
    with pytest.raises(DnaError, match="'fibottention' differs from layer to layer: build_attention needs layer="):
        build_attention(AttentionSpec(pattern="fibottention"), dim=12, heads=3)


def test_layers_that_the_spec_does_not_choose_are_dense():
    spec = AttentionSpec("dna", "longformer", layers="1:")
    assert build_attention(spec, dim=12, heads=3, layer=0, depth=2).pattern is None
    assert build_attention(spec, dim=12, heads=3, layer=1, depth=2).pattern is not None


def test_attention_to_a_context_is_refused():
    with pytest.raises(DnaError, match="attention to a context needs pattern null"):
        build_layer()(torch.ones(1, 17, 12), torch.ones(1, 17, 12))


def test_tokens_that_are_all_prefix_are_refused():
    with pytest.raises(DnaError, match="2 tokens, 2 of them prefix tokens: a pattern needs at least one patch"):
        build_layer(pattern="longformer", prefix=2)(torch.ones(1, 2, 12, dtype=torch.float64))


def test_a_mask_of_the_call_blocks_as_well():
    layer = build_layer()
    s = layer.project(torch.randn(2, 17, 12, dtype=torch.float64))
    causal = torch.ones(17, 17, dtype=torch.bool).tril()
    wanted = compute_reference("softmax", s, scale=layer.scale, mask=layer.pattern.mask(17, CPU) & causal)
    torch.testing.assert_close(layer.mix(s, layer.make_scores(s, None, causal)), wanted, rtol=0, atol=1e-12)
    layer.pattern.mask_mode = "zero_logit"
    with pytest.raises(DnaError, match="a mask on top needs neg_inf"):
        layer.make_scores(s, None, causal)


def test_denoising_attention_and_dilated_windows_have_names_of_their_own():
    assert not set(PATTERNS) & set(OPERATORS)
    assert not [name for name in PATTERNS if name.startswith(("dna", "denoising"))]
