"""The ONNX file: onnxruntime computes what the model computes, for any number of pictures."""

import importlib.util
import json

import numpy
import onnx
import onnxruntime
import pytest
import torch

from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.errors import MissingExtra
from dna_suite.export.onnx import write_onnx
from tests.export.model_cases import make, pictures


def check(folder, weights, model, side=32):
    told = write_onnx(weights, model, folder)
    assert "run by onnxruntime with 1 and 3 pictures" in told
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    for batch in (1, 6):
        (found,) = session.run(["logits"], {"pictures": pictures(side, batch).numpy()})
        with torch.inference_mode():
            expected = model(pictures(side, batch)).numpy()
        # What the project promises of an export; 1e-6 is what is seen.
        assert numpy.abs(found - expected).max() <= 1e-4 * numpy.abs(expected).max()
    return session


def test_a_model_with_a_pattern_runs_in_any_batch_and_says_what_it_is(tmp_path):
    session = check(tmp_path, *make(name="dna", pattern="longformer"))
    texts = session.get_modelmeta().custom_metadata_map
    assert json.loads(texts["classes"])[0] == "class 0"
    assert json.loads(texts["transform"])["mean"] == [0.4] * 3
    assert json.loads(texts["attention"])["name"] == "dna"
    (given,) = session.get_inputs()
    assert given.shape[0] in ("batch", "s0")
    assert given.shape[1:] == [3, 32, 32]
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


# A pattern is a mask over any operator's logits, so each is tried with one of them.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "pattern"), [*((name, None) for name in OPERATORS), *(("dna", name) for name in PATTERNS)])
def test_every_attention_exports(tmp_path, name, pattern):
    options = {"empty_heads": "prefix"} if pattern == "fibottention" else {}
    check(tmp_path, *make(name=name, pattern=pattern, options=options))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "side"), [("swin_tiny", 64), ("convit_tiny", 32), ("deit_tiny_distilled", 32), ("vit_base", 64)]
)
def test_every_backbone_exports(tmp_path, backbone, side):
    check(tmp_path, *make(backbone, "dna", side=side), side=side)


def test_a_missing_package_is_told_with_its_extra(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name))
    with pytest.raises(MissingExtra, match=r"onnxscript is not installed: pip install 'dna_suite\[export\]'"):
        write_onnx(*make(), tmp_path)
