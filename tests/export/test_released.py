"""The file for the released code: its formula is compared in tests/backbones/test_released.py."""

import pytest
import torch

from dna_suite.errors import DnaError
from dna_suite.export.released import write_released
from tests.export.model_cases import make


@pytest.mark.parametrize(("name", "key"), [("dna", "qqkvv"), ("dna-q", "qqkv"), ("softmax", "qkv")])
def test_the_file_has_the_released_names_under_model(tmp_path, name, key):
    weights, model = make(name=name)
    write_released(weights, model, tmp_path)
    content = torch.load(tmp_path / "model.pth", weights_only=True)
    assert content.keys() == {"model"}
    names = {part.removeprefix("blocks.0.attn.") for part in content["model"] if part.startswith("blocks.0.attn.")}
    scalers = set() if name == "softmax" else {"neg_scalers"}
    assert names == {f"{key}.weight", f"{key}.bias", "proj.weight", "proj.bias", *scalers}
    assert content["model"]["pos_embed"].shape == (1, 16, 48)


def test_a_model_that_the_released_code_has_not_is_refused(tmp_path):
    with pytest.raises(DnaError, match="the released code has layers for dna, dna-q and softmax"):
        write_released(*make(name="cog"), tmp_path)
