"""Specs that name what does not exist."""

import pytest

from dna_suite.attention.options import check_attention, operator_options
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (AttentionSpec("dnaq"), "unknown attention 'dnaq'; did you mean 'dna-q'"),
        (AttentionSpec("dna", pattern="fibotention"), "unknown attention pattern 'fibotention'"),
        (AttentionSpec("dna", options={"alpa": 1.0}), "unknown option of attention 'dna' 'alpa'; did you mean 'alpha'"),
        (AttentionSpec("softmax", options={"alpha": 1.0}), "unknown option of attention 'softmax' 'alpha'"),
    ],
)
def test_unknown_names_are_told_with_the_nearest(spec, message):
    with pytest.raises(UnknownName, match=message):
        check_attention(spec)


@pytest.mark.parametrize("value", ["0.5", True, None, [0.5], float("nan"), float("inf")])
def test_a_value_of_another_type_is_refused(value):
    with pytest.raises(DnaError, match=r"attention\.options\.alpha is .*: a float is needed, such as 0\.5"):
        check_attention(AttentionSpec("dna", options={"alpha": value}))


def test_defaults_are_filled_in_and_whole_numbers_are_floats():
    assert operator_options(AttentionSpec("dna")) == {"alpha": 0.5}
    assert operator_options(AttentionSpec("dna", options={"alpha": 0})) == {"alpha": 0.0}
    assert operator_options(AttentionSpec("dna-shared-plain")) == {}
