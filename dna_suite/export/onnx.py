"""Weights and computation as one ONNX file, for any number of pictures at a time."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from dna_suite.attention.multihead import written_out
from dna_suite.backbones.weights import Weights
from dna_suite.errors import DnaError, MissingExtra
from dna_suite.export.agreement import compare, probe

FILE = "model.onnx"
LIMIT = 1e-4
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
# A file of one piece ends at 2 GiB: that is how protobuf counts.
LARGEST = 2**31
BATCHES = (1, 3)


def write_onnx(weights: Weights, model: nn.Module, folder: Path) -> str:
    """Writes model.onnx: normalised pictures [batch, 3, side, side] in, logits [batch, classes] out, and runs it.

    The written-out path is exported: kernels of one library do not travel. Classes and evaluation transform are texts beside
    the graph.

    Args:
        weights: of a run.
        model: the model that they are in, in eval mode.
        folder: gets the file.

    Returns:
        What was checked, in words.

    Raises:
        MissingExtra: a package of the extra "export" is not installed.
        DnaError: the file would be too large, or onnxruntime computes something else.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "export")
    if (size := sum(tensor.nbytes for tensor in model.state_dict().values())) >= LARGEST:
        raise DnaError(f"{FILE}: {size / 1e9:.1f} GB of tensors, and an ONNX file holds 2")
    pictures = probe(model, 2)
    with written_out(model), torch.inference_mode():
        # A pattern's mask is made in the first call and kept; made under the exporter it would be part of the graph.
        model(pictures)
    with written_out(model), torch.no_grad(), _quiet():
        program = torch.onnx.export(
            model,
            (pictures,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=["pictures"],
            output_names=["logits"],
            external_data=False,
            verbose=False,
        )
    assert program is not None
    record = weights.record or {}
    for key in ("classes", "transform", "attention", "backbone"):
        program.model.metadata_props[key] = json.dumps(record.get(key))
    program.save(folder / FILE)
    error = max(_run(model, folder / FILE, batch) for batch in BATCHES)
    opset = program.model.opset_imports[""]
    batches = " and ".join(map(str, BATCHES))
    return f"opset {opset}, run by onnxruntime with {batches} pictures: logits differ by {error:.0e} at most"


def _run(model: nn.Module, file: Path, batch: int) -> float:
    """The error of onnxruntime against the model's own path, on pictures that the exporter did not see."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    pictures = probe(model, batch, seed=batch)
    (found,) = session.run(["logits"], {"pictures": pictures.numpy()})
    with torch.inference_mode():
        return compare(model(pictures), torch.from_numpy(found), LIMIT, FILE)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's own progress lines and warnings: what matters is checked by running the result."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
