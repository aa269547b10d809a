"""An export that computes something else than the model is refused."""

import pytest
import torch

from dna_suite.errors import DnaError
from dna_suite.export.agreement import compare, probe
from tests.export.model_cases import make


def test_the_error_is_a_share_of_large_logits_and_absolute_for_small_ones():
    assert compare(torch.tensor([100.0, 1.0]), torch.tensor([100.0, 2.0]), 0.011, "x") == pytest.approx(0.01)
    assert compare(torch.tensor([0.1]), torch.tensor([0.2]), 0.11, "x") == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (torch.tensor([1.0, 1.01]), r"1\.0e-02, over 1e-04"),
        (torch.tensor([1.0, float("nan")]), "nan, over 1e-04"),
        (torch.ones(3), r"shapes \[3\] and \[2\]"),
    ],
)
def test_what_differs_is_told(found, told):
    with pytest.raises(DnaError, match=rf"^model\.onnx: the export computes something else than the model \({told}\); nothing"):
        compare(torch.ones(2), found, 1e-4, "model.onnx")


@pytest.mark.parametrize(("backbone", "side"), [("vit_digits", 32), ("swin_tiny", 64), ("convit_tiny", 32)])
def test_pictures_fit_the_model_and_are_the_same_at_every_call(backbone, side):
    _, model = make(backbone, side=side)
    pictures = probe(model, 2)
    assert pictures.shape == (2, 3, side, side)
    assert torch.equal(pictures, probe(model, 2))
    assert not torch.equal(pictures, probe(model, 2, seed=1))
