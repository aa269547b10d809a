"""The classification task outside the command line: values of loss, normalisation and description."""

import math

import pytest
import torch
from lightning.pytorch import Trainer

from dna_suite.data.digits import Digits
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec
from dna_suite.tasks.classification import ImageClassification


def task(**arguments: object) -> ImageClassification:
    model = ImageClassification("vit_digits", size="tiny", **arguments)
    model.adopt(Digits("digits", erase=0.0))
    model.configure_model()
    model.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    return model


def batch(labels: list[int], counted: list[bool]) -> dict[str, torch.Tensor]:
    images = torch.arange(len(labels) * 3 * 32 * 32, dtype=torch.int64).remainder(256).to(torch.uint8)
    return {"image": images.view(-1, 3, 32, 32), "label": torch.tensor(labels), "counted": torch.tensor(counted)}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mixup", [0.0, 0.8])
@pytest.mark.parametrize("cutmix", [0.0, 1.0])
def test_equal_logits_cost_log_classes_whatever_the_targets(smoothing: float, mixup: float, cutmix: float) -> None:
    # facebookresearch/deit#91: the loss for hard labels was picked for soft targets in some of these cases.
    model = task(label_smoothing=smoothing, mixup=mixup, cutmix=cutmix)
    torch.nn.init.zeros_(model.net.head.weight)
    torch.nn.init.zeros_(model.net.head.bias)
    loss = model.loss(batch([0, 1, 2], [True, True, True]), 0)
    # float32 sums of ten terms: a few units of 1e-7.
    assert loss.item() == pytest.approx(math.log(10), rel=1e-6)


def test_uncounted_samples_do_not_enter_the_loss() -> None:
    model = task()
    alone = model.loss(batch([4, 5], [True, True]), 0)
    padded = batch([4, 5, 9], [True, True, False])
    with_idle = model.loss(padded, 0)
    # Another batch size sums in another order: float32 rounding.
    assert with_idle.item() == pytest.approx(alone.item(), rel=1e-6)
    nothing = model.loss(batch([4], [False]), 0)
    assert nothing.item() == 0


def test_pictures_are_normalised_by_the_data_set_s_numbers() -> None:
    model = task()
    white = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    # (1 - 0.308) / 0.35, rounded to float32.
    assert float(model.normalise(white)[0, 0, 0, 0]) == pytest.approx((1 - 0.308) / 0.35, rel=1e-6)


def test_the_seed_decides_the_weights() -> None:
    first, second = task(), task()
    third = ImageClassification("vit_digits", size="tiny")
    third.seed = 1
    third.adopt(Digits("digits"))
    third.configure_model()
    assert torch.equal(first.net.head.weight, second.net.head.weight)
    assert not torch.equal(first.net.head.weight, third.net.head.weight)


def test_the_description_says_which_network_it_is() -> None:
    described = task(attention=AttentionSpec("dna-v"), heads=4).describe_network()
    assert described["backbone"] == {
        "name": "vit_digits",
        "size": "tiny",
        "dim": 48,
        "depth": 2,
        "heads": 4,
        "patch": 8,
        "distilled": False,
        "image_size": 32,
        "class_token_position": True,
        "drop_path": 0.0,
    }
    assert described["classes"] == list("0123456789")


def test_compiling_adds_no_prefix_to_the_keys() -> None:
    # Lightning-AI/pytorch-lightning#20233: torch.compile(module) would.
    assert task(compile=True).state_dict().keys() == task().state_dict().keys()


@pytest.mark.parametrize("key", ["drop_path", "label_smoothing", "mixup_switch"])
def test_shares_outside_0_to_1_are_refused(key: str) -> None:
    with pytest.raises(DnaError, match=rf"model\.{key} 1\.5: from 0 to 1"):
        ImageClassification("vit_digits", **{key: 1.5})
