"""The robustness sets at their published size and with their class lists, for a model of ImageNet's 1,000 classes."""

import json
import os
from pathlib import Path

import pytest
import torch
from PIL import Image

from dna_suite.cli.main import main
from dna_suite.data.real_labels import read_real_labels
from dna_suite.data.robustness_folders import PUBLISHED, known_ids

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "imagenet_subsets.json"
SMALL = ["--model.backbone=vit_tiny", "--model.size=tiny", "--data.size=32", "--data.workers=2", "--trainer.accelerator=cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folders with as many pictures as published, all one file under many names, and fresh weights of 1,000 classes."""
    folder = tmp_path_factory.mktemp("home")
    picture = Image.effect_noise((40, 48), 80).convert("RGB")

    def fill(place, names, pictures, number):
        # A file system allows some 65,000 names of a file.
        source = folder / f"{place.name}.png"
        picture.save(source)
        for index in range(pictures):
            path = place / names[index % len(names)] / number(index)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, path)

    listed = {key.lower(): indices for key, indices in json.loads(GOLDEN.read_text())["class_indices"].items()}
    for key in ("a", "r", "o"):
        names = [known_ids()[index] for index in listed[key]]
        fill(folder / "sets" / PUBLISHED[key].folder, names, PUBLISHED[key].pictures, "{:06d}.jpg".format)
    fill(folder / "sets" / "val", known_ids(), 50_000, lambda index: f"ILSVRC2012_val_{index + 1:08d}.JPEG")
    fill(folder / "sets" / "sketch", known_ids(), PUBLISHED["sketch"].pictures, "sketch_{}.JPEG".format)
    fill(folder / "sets" / PUBLISHED["v2"].folder, [str(index) for index in range(1000)], 10_000, "{:08x}.jpeg".format)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["--config=tasks/imagenet_vit.yaml", "--config=configs/smoke.yaml", *SMALL]
        for split in ("train", "val"):
            fill(folder / "imagenet" / split, known_ids(), 1000, "{}.JPEG".format)
        data = ["--data.toy=false", f"--data.root={folder / 'imagenet'}", "--trainer.limit_train_batches=1"]
        assert main(["fit", *words, *data, "--trainer.max_epochs=1", "--data.batch=8"]) == 0
        (folder / "runs/smoke/imagenet_vit/softmax/seed0").rename(folder / "run")
    return folder


@pytest.fixture(autouse=True)
def inside(home, monkeypatch):
    monkeypatch.chdir(home)


def run(recipe, *words):
    """The record of a test of the run."""
    assert main(["test", f"--config=tasks/{recipe}.yaml", "--run=run", "--data.root=sets", "--data.workers=2", *words]) == 0
    return json.loads(Path(f"run/evaluations/{recipe}/result.json").read_text())


def test_a_r_and_o_have_as_many_pictures_as_published():
    record = run("robustness")
    assert record["data"]["counts"] == {"a": 7_500, "r": 30_000, "o": 2_000, "val": 10_000}
    assert record["data"]["protocol"] == {
        "classes": 1000,
        "folders": dict.fromkeys("aro", 200) | {"val": 200},
        "subset_ok": False,
    }
    metrics = {name: entry["value"] for name, entry in record["metrics"].items()}
    # One picture under every label: right is one class of 200, which has 37 or 38 of A's pictures and 150 of R's.
    assert metrics["test/a/top1"] in (37 / 7_500, 38 / 7_500)
    assert metrics["test/r/top1"] == 150 / 30_000
    assert metrics["test/o/aupr_chance"] == pytest.approx(1 / 6, abs=1e-12)
    # Equal confidences tell nothing.
    assert metrics["test/o/auroc"] == 0.5
    assert metrics["test/o/aupr"] == pytest.approx(1 / 6, abs=1e-12)


def test_v2_sketch_and_real_have_as_many_pictures_as_published():
    record = run("imagenet_shifts")
    assert record["data"]["counts"] == {"v2": 10_000, "sketch": 50_889, "real": 46_837}
    assert record["data"]["protocol"]["real_labels"] == "timm"
    metrics = {name: entry["value"] for name, entry in record["metrics"].items()}
    assert metrics["test/v2/top1"] == 1 / 1000
    # The one class that is named is right for the pictures that have it among their labels.
    shares = [0] * 1000
    labels = [found for found in read_real_labels(None) if found]
    for found in labels:
        for label in set(found):
            shares[label] += 1
    assert metrics["test/real/top1"] in {share / len(labels) for share in shares}
    assert torch.load(Path("run/checkpoints/best.ckpt"), weights_only=True)["dna"]["classes"] == known_ids()
