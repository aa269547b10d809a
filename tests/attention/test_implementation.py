"""Classes of other packages' operators."""

import pytest

from dna_suite.attention.denoising import DnA
from dna_suite.attention.implementation import load_implementation
from dna_suite.errors import DnaError


def test_module_and_class():
    assert load_implementation("mine", "dna_suite.attention.denoising:DnA") is DnA


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("dna_suite.attention.denoising", 'is not "module:class"'),
        ("dna_suite.nowhere:DnA", "'mine': dna_suite.nowhere:DnA cannot be loaded: No module named"),
        ("dna_suite.attention.denoising:DNA", "cannot be loaded"),
        ("dna_suite.attention.scores:Scores", "is no subclass of"),
    ],
)
def test_what_cannot_be_used_is_told_with_the_operator(path, message):
    with pytest.raises(DnaError, match=message):
        load_implementation("mine", path)
