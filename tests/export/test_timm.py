"""The folder for timm: plain timm builds the model from it, without this suite."""

import json

import pytest
import timm
import torch
from timm.data import resolve_data_config

from dna_suite.backbones.weights import read_weights
from dna_suite.errors import DnaError
from dna_suite.export.timm import write_timm
from tests.export.model_cases import make, pictures


@pytest.mark.parametrize(
    ("backbone", "side", "position"),
    [
        ("vit_digits", 32, True),
        ("vit_base", 32, False),
        ("deit_tiny_distilled", 32, True),
        ("swin_tiny", 64, True),
        ("convit_tiny", 32, True),
    ],
)
def test_plain_timm_builds_the_model_and_computes_the_same(tmp_path, backbone, side, position):
    weights, model = make(backbone, side=side, class_token_position=position)
    told = write_timm(weights, model, tmp_path)
    assert "built by timm.create_model('local-dir:DIR', pretrained=True)" in told
    back = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    with torch.inference_mode():
        expected = model(pictures(side))
        # float32 sums of a packed projection in another order.
        assert (back(pictures(side)) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert not [module for module in back.modules() if type(module).__module__.startswith("dna_suite")]
    config = resolve_data_config({}, model=back)
    assert (config["input_size"], tuple(config["mean"]), config["crop_pct"]) == ((3, side, side), (0.4, 0.4, 0.4), 0.9)
    assert json.loads((tmp_path / "config.json").read_text())["label_names"][6] == "class 6"
    again = read_weights(tmp_path)
    assert again.normalisation == {"mean": [0.4] * 3, "std": [0.2] * 3}
    assert again.classes == [f"class {number}" for number in range(7)]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"name": "dna"}, "timm has no layer for DnA; only softmax"),
        ({"name": "dna", "layers": "1"}, r"blocks\.1\.attn: timm has no layer for DnA"),
        ({"pattern": "longformer"}, "timm has no layer for the pattern longformer; only dense softmax"),
    ],
)
def test_attention_that_timm_has_not_is_refused(tmp_path, kwargs, message):
    with pytest.raises(DnaError, match=message):
        write_timm(*make(**kwargs), tmp_path)
