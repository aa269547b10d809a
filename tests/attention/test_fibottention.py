"""Fibottention's supports: golden sets, edges, orders of the heads."""

from itertools import combinations

import pytest
import torch

from dna_suite.attention.reference import compute_reference
from dna_suite.attention.registry import build_attention
from dna_suite.attention.scores import Scores
from dna_suite.attention.softmax import Softmax
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec

from .pattern_cases import CASES, GOLDEN, make_case, make_pattern, make_tensors

LEAST = {
    "wythoff": {2: 15, 3: 18, 4: 27, 6: 42, 8: 57, 12: 90, 16: 123, 24: 186},
    "wythoff_modified": {2: 15, 3: 15, 4: 15, 6: 15, 8: 21, 12: 33, 16: 45, 24: 69},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_golden_sets(case):
    pattern = make_case(case, empty_heads="prefix")
    kept = pattern.distances(case["N"])
    assert [list(head) for head in kept] == case["offsets"]
    assert [row for row, head in enumerate(kept, 1) if not head] == case["empty_heads"]
    overlaps = [
        [i, j, sorted(set(kept[i - 1]) & set(kept[j - 1]))]
        for i, j in combinations(range(1, case["h"] + 1), 2)
        if set(kept[i - 1]) & set(kept[j - 1])
    ]
    assert overlaps == case["overlaps"]
    assert (not overlaps) == case["pairwise_disjoint"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_golden_counts_with_and_without_the_class_token(case):
    heads, patches = case["h"], case["N"]
    # zero_logit: without a class token some cases have rows with no key.
    bare = make_case(case, empty_heads="prefix", prefix=0, mask_mode="zero_logit").count_pairs(patches)
    classed = make_case(case, empty_heads="prefix").count_pairs(patches + 1)
    assert bare == case["kept_patch_pairs_total"]
    assert round(100 - 100 * bare / (heads * patches**2), 6) == case["patch_sparsity_percent"]
    assert round(100 - 100 * classed / (heads * (patches + 1) ** 2), 6) == case["sparsity_with_cls_percent"]


@pytest.mark.parametrize("case", [case for case in CASES.values() if case["N"] <= 256], ids=lambda case: case["id"])
def test_golden_masks(case):
    heads, patches = case["h"], case["N"]
    mask = make_case(case, empty_heads="prefix").mask(patches + 1, torch.device("cpu")).expand(1, heads, -1, -1)
    inner = mask[0, :, 1:, 1:]
    assert inner.sum(dim=(1, 2)).tolist() == case["kept_patch_pairs_per_head"]
    assert (~inner.any(dim=-1)).sum(dim=-1).tolist() == case["rows_without_patch_key_per_head"]
    assert torch.equal(mask, mask.transpose(-2, -1))
    assert mask[..., 0].all()
    assert mask[..., 0, :].all()


@pytest.mark.parametrize("example", GOLDEN["tiny_masks"], ids=lambda example: example["variant"])
def test_tiny_masks_cell_by_cell(example):
    pattern = make_case(example, empty_heads="prefix")
    mask = pattern.mask(example["N"] + 1, torch.device("cpu"))
    assert [["".join(str(int(cell)) for cell in row) for row in head] for head in mask[0]] == example["rows_per_head"]


@pytest.mark.parametrize("engine", ["dense", "offsets"])
@pytest.mark.parametrize("example", GOLDEN["numeric_examples"], ids=lambda e: f"{e['variant']}-{e['mask_mode']}")
def test_golden_outputs(example, engine):
    pattern = make_case(example, empty_heads="prefix", mask_mode=example["mask_mode"])
    q, k, v = make_tensors(example)
    scale, tokens = example["head_dim"] ** -0.5, example["N"] + 1
    support = {"mask": pattern.mask(tokens, q.device)} if engine == "dense" else {"diagonals": pattern.diagonals(tokens)}
    out = Softmax(example["h"], example["head_dim"])(
        {"q": q, "k": k, "v": v}, Scores(scale, mask_mode=example["mask_mode"], **support)
    )
    # The file has twelve digits.
    torch.testing.assert_close(out[0], torch.tensor(example["output"], dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mask_mode", ["neg_inf", "zero_logit"])
def test_both_branches_of_dna_keep_the_pattern(mask_mode):
    options = {"window_min": 1, "window_max": 12, "mask_mode": mask_mode}
    layer = build_attention(
        AttentionSpec("dna", "fibottention", options=options), dim=12, heads=3, layer=2, depth=4, prefix=1
    ).double()
    with torch.no_grad():
        for name in layer.streams:
            layer.get_submodule(name).weight.normal_()
    s = layer.project(torch.randn(2, 17, 12, dtype=torch.float64))
    mask = layer.pattern.mask(17, torch.device("cpu"))
    wanted = compute_reference("dna", s, scale=layer.scale, mask=mask, alpha=[0.5] * 3, zero_logit=mask_mode == "zero_logit")
    layer.pattern.engine = "offsets"
    out = layer.mix(s, layer.make_scores(s, None, None))
    # float64 rounding of sums of 17 terms of size 1.
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-13)


def test_a_window_outside_its_range_names_itself():
    with pytest.raises(DnaError, match=r"window_min 5, window_max 4 with 14 patches: .* <= 14 is needed; window_max 0 needs 15"):
        make_pattern().distances(14)
    with pytest.raises(DnaError, match="window_max 201 with 200 patches"):
        make_pattern(window_max=201).distances(200)
    with pytest.raises(DnaError, match="window_max 4: at least window_min 5"):
        make_pattern(window_max=4)
    assert make_pattern(window_min=200, window_max=200).distances(200)[0][-1] == 144


def test_a_distance_of_the_token_count_keeps_no_pair():
    assert make_pattern(heads=1, window_min=5, window_max=5).distances(5) == ((1, 2, 3),)


def test_one_head_has_the_smallest_window():
    assert make_pattern(heads=1, window_min=5, window_max=65).distances(196) == ((1, 2, 3, 5),)


@pytest.mark.parametrize("variant", LEAST)
def test_an_empty_head_is_refused_with_the_smallest_count_that_works(variant):
    for heads, least in LEAST[variant].items():
        pattern = make_pattern(heads=heads, variant=variant)
        assert all(pattern.distances(least))
        if least > 15:
            message = f"{variant} with {heads} heads and {least - 1} patches leaves heads .* {least} patches, .* would do"
            with pytest.raises(DnaError, match=message):
                pattern.distances(least - 1)


def test_an_empty_head_sees_prefix_tokens_or_takes_the_modified_row():
    windows = {"heads": 2, "window_min": 1, "window_max": 3}
    assert make_pattern(**windows, empty_heads="prefix").distances(6) == ((1,), ())
    assert make_pattern(**windows, empty_heads="modified").distances(6) == ((1,), (1, 3))
    mask = make_pattern(**windows, empty_heads="prefix").mask(7, torch.device("cpu"))
    assert mask[0, 1, 1:].sum(dim=-1).tolist() == [1] * 6


def test_released_edges_keep_a_first_distance_above_its_window():
    case = next(c for c in GOLDEN["official_code"] if (c["source"], c["variant"], c["h"], c["N"]) == ("HEAD", "wythoff", 12, 64))
    kept = make_case(case, released_edges=True).distances(64)
    assert [list(head) for head in kept] == case["raw_sequences"]
    assert kept[11] == (30,)
    with pytest.raises(DnaError, match=r"heads 5 \(window 10\), 6 .* without any key"):
        make_case(case).distances(64)


def test_released_edges_beyond_the_patches_are_refused_where_the_release_fails():
    with pytest.raises(DnaError, match="without any key"):
        make_pattern(heads=12, window_max=5, released_edges=True).distances(16)


def test_zero_and_repeated_distances_stand_once():
    kept = make_pattern(heads=1, variant="wythoff_modified", window_min=5, window_max=5)
    assert kept.distances(196) == ((0, 1, 2, 3, 5),)
    assert kept.count_pairs(197) == 197**2 - 196**2 + 1742


def test_the_order_of_each_layer_is_that_of_the_release():
    for heads, layers in GOLDEN["official_layer_permutations"]["heads"].items():
        for layer, order in layers.items():
            assert [row + 1 for row in make_pattern(heads=int(heads), layer=int(layer), shuffle=True).order] == order


def test_sets_move_with_their_windows():
    plain = make_pattern(heads=12).distances(196)
    shuffled = make_pattern(heads=12, layer=3, shuffle=True)
    assert shuffled.distances(196) == tuple(plain[row] for row in shuffled.order) != plain


def test_another_seed_gives_other_orders():
    orders = {make_pattern(heads=12, layer=layer, seed=seed, shuffle=True).order for layer in range(12) for seed in range(12)}
    assert len(orders) == 144
