"""The reference loops against the golden numbers, which other loops computed."""

import pytest
import torch

from dna_suite.attention.reference import compute_reference
from dna_suite.errors import UnknownName

from .golden_cases import CASES, find_scale, make_bias, make_mask, make_operator, make_streams, split_name


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_golden_outputs(case):
    zero_logit = case["options"].get("mask_mode") == "zero_logit"
    out = compute_reference(
        split_name(case["operator"])[0],
        make_streams(case),
        scale=find_scale(case["operator"]),
        bias=make_bias(case),
        mask=make_mask(case),
        zero_logit=zero_logit,
        **make_operator(case["operator"]).constants(),
    )
    # Float64 loops over five terms, summed in another order.
    assert (out[0] - torch.tensor(case["out"], dtype=torch.float64)).abs().max() <= 1e-14


def test_an_operator_without_a_reference_is_named():
    with pytest.raises(UnknownName, match="unknown attention 'dnaq'"):
        compute_reference("dnaq", {}, scale=1.0)
