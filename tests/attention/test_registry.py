"""Operators by name, and layers from specs."""

import pytest
import torch

from dna_suite.attention.operator import Operator
from dna_suite.attention.registry import build_attention, list_operators, list_patterns, operator_class, register
from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec


def test_every_catalogue_entry_has_a_class_with_its_streams():
    assert list_operators() == tuple(OPERATORS)
    assert list_patterns() == tuple(PATTERNS)
    for name, entry in OPERATORS.items():
        assert operator_class(name).streams == entry.streams


def test_registering_checks_name_streams_and_uniqueness():
    with pytest.raises(UnknownName, match="did you mean 'softmax'"):
        register("softmaxx")(Operator)
    with pytest.raises(DnaError, match="class has streams"):
        register("dna")(Operator)
    with pytest.raises(DnaError, match="registered already, as Softmax"):
        register("softmax")(Operator)


def test_layers_that_the_spec_does_not_choose_keep_softmax():
    spec = AttentionSpec("dna", layers="1:-1")
    streams = [build_attention(spec, dim=8, heads=2, layer=layer, depth=4).streams for layer in range(4)]
    assert streams == [("q", "k", "v"), OPERATORS["dna"].streams, OPERATORS["dna"].streams, ("q", "k", "v")]


def test_alpha_starts_where_the_option_says():
    layer = build_attention(AttentionSpec("dna", options={"alpha": -1}), dim=8, heads=4)
    assert layer.operator.alpha.tolist() == [-1.0] * 4
    assert build_attention(AttentionSpec("dna-q"), dim=8, heads=2).operator.alpha.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("dim", "heads"), [(100, 12), (96, 0), (96, 7), (96, -2)])
def test_heads_that_do_not_divide_the_width_are_told_with_both_numbers(dim, heads):
    with pytest.raises(DnaError, match=f"heads {heads} does not divide dim {dim}"):
        build_attention(AttentionSpec(), dim=dim, heads=heads)


def test_a_layer_can_be_built_on_the_meta_device():
    layer = build_attention(AttentionSpec("dna"), dim=8, heads=2, device="meta", dtype=torch.bfloat16)
    assert all(p.is_meta for p in layer.parameters())
    assert layer.operator.alpha.dtype == torch.float32
