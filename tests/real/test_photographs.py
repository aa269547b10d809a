"""Photographs from files in ImageNet's layout through reading, transform, task and metrics, on a network with real weights."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from PIL import Image
from timm.data import ImageNetInfo, create_transform
from torch import nn

from dna_suite.data.imagenet import ImageNet
from dna_suite.data.images import IMAGENET_MEAN, IMAGENET_STD
from dna_suite.runs.predictions import PredictionWriter
from dna_suite.tasks.classification import ImageClassification

# Twenty photographs are of nineteen classes.
pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore:.*no picture of class:UserWarning")]

WNIDS = ImageNetInfo("imagenet-1k").label_names()
# How the network was trained: pixels from -1 to 1.
TRAINED = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
OTHER = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
# What the network alone makes of the photographs, in file order; both jeeps (609) are taken for something else.
CLASSES = [243, 559, 438, 990, 949, 853, 436, 511, 915, 455, 541, 630, 741, 471, 129, 99, 251, 22, 317, 305]


@pytest.fixture(scope="module")
def folder(photographs: list[tuple[Path, int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's 1,000 class folders, and in val the photographs."""
    root = tmp_path_factory.mktemp("imagenet")
    for wnid in WNIDS:
        (root / "train" / wnid).mkdir(parents=True)
    for path, label in photographs:
        place = root / "val" / WNIDS[label] / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    return root


def prepare(network: nn.Module) -> ImageClassification:
    """Our task around a network that is there already, which it therefore does not build."""
    task = ImageClassification("vit_imagenet")
    task.net = network
    return task


def trainer(*callbacks: PredictionWriter) -> Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(accelerator="cpu", callbacks=list(callbacks), **quiet)


def data_of(folder: Path, normalisation: dict[str, tuple[float, ...]], backend: str) -> ImageNet:
    return ImageNet(root=str(folder), batch=8, workers=0, size=224, crop_ratio=0.875, eval_backend=backend, **normalisation)


@pytest.mark.parametrize(
    ("normalisation", "backend", "top1", "top5"),
    [
        pytest.param(TRAINED, "torch", 18, 19, id="as trained"),
        pytest.param(TRAINED, "pil", 18, 19, id="as trained, resized by Pillow"),
        # One of these is right by 0.02 logits, and Pillow's pixels are the same on every machine.
        pytest.param(OTHER, "pil", 15, 19, id="another normalisation"),
    ],
)
def test_as_many_are_right_as_the_network_alone_has_right(folder, efficientnet, normalisation, backend, top1, top5):
    task = prepare(efficientnet)
    trainer().test(task, data_of(folder, normalisation, backend), verbose=False)
    assert task.results["test/top1"] == (top1 / 20, 20)
    assert task.results["test/top5"] == (top5 / 20, 20)


def test_the_confusions_are_those_of_the_photographs(folder, efficientnet, photographs):
    task = prepare(efficientnet)
    trainer().test(task, data_of(folder, TRAINED, "torch"), verbose=False)
    pairs = {(label, taken): int(task.confusions[label, taken]) for label, taken in task.confusions.nonzero().tolist()}
    assert pairs == Counter(zip((label for _, label in photographs), CLASSES, strict=True))


# A probability is written with six digits (5e-7), and other batches sum float32 in another order; Pillow's pixels are timm's.
# torch's are within 2 levels of them, which moved no probability by more than 8e-5. A crop one pixel off moves one by 0.2.
@pytest.mark.parametrize(("backend", "tolerance"), [("pil", 2e-6), ("torch", 5e-4)])
def test_predictions_are_those_of_timm_s_transform(folder, efficientnet, photographs, tmp_path, backend, tolerance):
    data = data_of(folder, TRAINED, backend)
    data.predict_input = str(folder / "val")
    trainer(PredictionWriter(tmp_path, topk=1000)).predict(prepare(efficientnet), data, return_predictions=False)
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    found = {Path(line["path"]).name: dict(zip(line["classes"], line["probabilities"], strict=True)) for line in lines}
    assert [WNIDS.index(next(iter(found[path.name]))) for path, _ in photographs] == CLASSES

    transform = create_transform(224, crop_pct=0.875, interpolation="bicubic", **TRAINED)
    pictures = torch.stack([transform(Image.open(path).convert("RGB")) for path, _ in photographs])
    with torch.inference_mode():
        expected = efficientnet(pictures).softmax(-1).numpy()
    ours = np.array([[found[path.name][wnid] for wnid in WNIDS] for path, _ in photographs])
    np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance)


def test_the_packages_take_the_place_of_nothing_that_the_suite_needs(real_data):
    needed = ["PIL", "jsonargparse", "lightning", "numpy", "safetensors", "scipy", "timm", "torch", "torchmetrics", "torchvision"]
    assert [name for name in needed if (real_data / name).exists()] == []
