"""ImageNet-C's corruptions with the package that computes them: pixels, and a test of a run on corrupted pictures."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dna_suite.cli.main import main
from dna_suite.data.corruptions import KINDS, SEVERITIES, Corruption
from dna_suite.data.pictures import read_picture
from dna_suite.data.position import seed_of
from dna_suite.data.transforms import CentreCrop

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("code_packages")]

GOLDEN = Path(__file__).parents[1] / "golden" / "imagenet_c_sums.json"
# One level in one of a thousand values: what filters of another processor may round otherwise. Another seed moves the sum of the
# weakest noise by thousands.
ROUNDED = 150


@pytest.fixture(scope="module")
def picture(photographs):
    """The first photograph, uint8 [3, 224, 224], cropped as ImageNet-C's were."""
    return CentreCrop(224, 0.875, "pil")(read_picture(photographs[0][0]))


def seeded(kind, severity):
    """The numbers that numpy's global generator draws for picture 0."""
    return np.random.RandomState(seed_of("corruption", kind, severity, 0) % 2**32)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_a_photograph_under_each_severity(picture, kind):
    sums = [int(Corruption(kind, severity)(picture, 0).sum()) for severity in SEVERITIES]
    assert sums == pytest.approx(json.loads(GOLDEN.read_text())["sums"][kind], abs=ROUNDED)


# The published strengths, in the words of the formula; a result is clipped and its fraction of a level cut off.
@pytest.mark.parametrize("severity", SEVERITIES)
def test_simple_kinds_are_the_published_formulas(picture, severity):
    share = picture.permute(1, 2, 0).numpy() / 255

    def found(kind):
        return Corruption(kind, severity)(picture, 0).permute(1, 2, 0).numpy()

    def levels(values):
        return np.uint8(np.clip(values, 0, 1) * 255)

    deviation = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    noise = seeded("gaussian_noise", severity).normal(size=share.shape, scale=deviation)
    assert (found("gaussian_noise") == levels(share + noise)).all()
    photons = (60, 25, 12, 5, 3)[severity - 1]
    assert (found("shot_noise") == levels(seeded("shot_noise", severity).poisson(share * photons) / photons)).all()
    kept, mean = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1], share.mean((0, 1))
    # The mean may be summed in another order: a level where the value is a whole number.
    assert np.abs(found("contrast").astype(int) - levels((share - mean) * kept + mean)).max() <= 1
    image = Image.fromarray(picture.permute(1, 2, 0).numpy())
    side = int(224 * (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1])
    assert (found("pixelate") == np.asarray(image.resize((side, side), Image.BOX).resize((224, 224), Image.BOX))).all()
    file = io.BytesIO()
    image.save(file, "JPEG", quality=(25, 18, 15, 10, 7)[severity - 1])
    assert (found("jpeg_compression") == np.asarray(Image.open(file))).all()


def test_impulses_are_black_or_white_in_as_many_places_as_published(picture):
    for severity, share in zip(SEVERITIES, (0.03, 0.06, 0.09, 0.17, 0.27), strict=True):
        changed = Corruption("impulse_noise", severity)(picture, 0)
        struck = changed != picture
        assert set(changed[struck].unique().tolist()) <= {0, 255}
        # Of 150,528 values, within four deviations of the binomial; a value that was black or white before may not show.
        assert float(struck.double().mean()) == pytest.approx(share, abs=4 * (share / 150_528) ** 0.5 + 0.01 * share)


@pytest.mark.parametrize("kind", KINDS)
def test_stronger_ones_are_further_from_the_picture_and_all_come_again(picture, kind):
    # Frost takes one of six photographs, some of them dark: its strength shows in the mean over many pictures.
    numbers = range(20) if kind == "frost" else range(1)
    shown = {severity: torch.stack([Corruption(kind, severity)(picture, number) for number in numbers]) for severity in (1, 5)}
    assert (Corruption(kind, 5)(picture, numbers[-1]) == shown[5][-1]).all()
    distance = {severity: float((images.float() - picture).abs().mean()) for severity, images in shown.items()}
    assert 0 < distance[1] < distance[5]
    assert all(images.dtype == torch.uint8 and images[0].shape == picture.shape for images in shown.values())


@pytest.fixture(scope="module")
def home(tmp_path_factory, code_packages):
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["--config=tasks/digits.yaml", "--config=configs/smoke.yaml", "--data.batch=64", "--trainer.max_epochs=2"]
        assert main(["fit", *words, "--trainer.limit_train_batches=1.0"]) == 0
        (folder / "runs/smoke/digits/softmax/seed0").rename(folder / "run")
    return folder


def test_a_run_on_corrupted_pictures(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    words = ["--config=tasks/imagenet_c.yaml", "--config=configs/robustness_toy.yaml", "--run=run"]
    chosen = ["--data.corruptions=[pixelate,fog,glass_blur]", "--data.severities=[1,5]"]
    assert main(["test", *words, *chosen, "--data.workers=2"]) == 0
    place = Path("run/evaluations/imagenet_c")
    record = json.loads((place / "result.json").read_text())
    assert record["data"]["counts"] == {"c": 6 * 360}
    applied = record["data"]["protocol"]["corruptions"]
    assert applied == {
        "kinds": ["glass_blur", "fog", "pixelate"],
        "severities": [1, 5],
        "package": "imagecorruptions-imaug 1.1.5",
    }
    names = {f"test/c/{name}" for name in ("top1", "glass_blur/top1", "fog/top1", "pixelate/top1")}
    assert set(record["metrics"]) == names
    with (place / "corruptions.csv").open(newline="") as lines:
        rows = {(row["corruption"], row["severity"]): float(row["top1"]) for row in csv.DictReader(lines)}
    assert list(rows) == [(kind, severity) for kind in applied["kinds"] for severity in "15"]
    mean = (rows["fog", "1"] + rows["fog", "5"]) / 2
    # Six digits in the table.
    assert record["metrics"]["test/c/fog/top1"]["value"] == pytest.approx(mean, abs=1e-6)
    assert (place / "corruptions.png").stat().st_size > 10_000
    # Loader processes or none, the pixels are the same.
    before = (place / "images.csv").read_bytes()
    assert main(["test", *words, *chosen, "--data.workers=0"]) == 0
    assert (place / "images.csv").read_bytes() == before
    (place / "corruptions.png").unlink()
    assert main(["report", "run", "--rescore", "--metric=c/fog/top1"]) == 0
    assert (place / "corruptions.png").is_file()
    assert f"{100 * mean:.2f}" in capsys.readouterr().out
