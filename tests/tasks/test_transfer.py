"""The transfer task outside the command line: its keys, and what a frozen backbone is."""

import pytest
import torch
from lightning.pytorch import Trainer

from dna_suite.catalogue import DATASETS, TASKS
from dna_suite.cli.agreement import FUNCTION_KEYS, SOURCE_TASKS
from dna_suite.cli.keys import documented, keys_of
from dna_suite.data.digits import Digits
from dna_suite.spec import AttentionSpec, OptimSpec
from dna_suite.tasks.optim import group_parameters
from dna_suite.tasks.transfer import Transfer, heads_of


def task(backbone: str = "vit_digits", size: int = 32, **arguments: object) -> Transfer:
    model = Transfer(backbone, size="tiny", **arguments)
    model.adopt(Digits("digits", size=size))
    model.configure_model()
    model.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    return model


def test_it_has_every_key_of_classification_and_one_more() -> None:
    keys = keys_of(TASKS["transfer"])
    assert keys.pop("freeze").default == "'none'"
    assert keys == keys_of(TASKS["classification"])
    assert documented(TASKS["transfer"]).keys() == {*keys, "freeze"}


def test_every_key_is_passed_on() -> None:
    given = {
        "patch": 16, "dim": 24, "depth": 1, "heads": 2, "drop_path": 0.1, "drop_path_shape": "constant",
        "class_token_position": False, "label_smoothing": 0.2, "mixup": 0.3, "cutmix": 0.4, "mixup_switch": 0.6,
        "channels_last": True, "ema": 0.5, "ema_warmup": True,
    }  # fmt: skip
    model = Transfer("vit_digits", attention=AttentionSpec("dna"), compile=True, **given)
    assert {key: getattr(model, key) for key in given} == given
    assert (model.attention.name, model.compile_network) == ("dna", True)
    assert (
        given.keys() | {"backbone", "size", "attention", "optim", "schedule", "compile", "freeze"}
        == keys_of(TASKS["transfer"]).keys()
    )


def test_every_task_says_what_it_shares_with_others() -> None:
    assert FUNCTION_KEYS.keys() == SOURCE_TASKS.keys() == TASKS.keys() == DATASETS.keys()
    assert all(set(sources) <= TASKS.keys() for sources in SOURCE_TASKS.values())


@pytest.mark.parametrize(
    ("backbone", "size", "heads"),
    [
        ("vit_digits", 32, {"head.weight", "head.bias"}),
        ("deit_tiny_distilled", 32, {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}),
        ("swin_tiny", 112, {"head.fc.weight", "head.fc.bias"}),
        ("convit_tiny", 32, {"head.weight", "head.bias"}),
    ],
)
def test_a_frozen_backbone_is_in_no_group_and_computes_as_in_evaluation(backbone: str, size: int, heads: set[str]) -> None:
    model = task(backbone, size, freeze="backbone", drop_path=0.5, attention=AttentionSpec("dna"))
    assert model.net is not None
    grouped = [name for group in group_parameters(model.net, OptimSpec()) for name in group.names]
    assert set(grouped) == heads
    assert len(grouped) == len(heads)
    pictures = torch.randint(0, 256, (4, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    model.train()
    with torch.no_grad():
        torch.manual_seed(0)
        first = model.net.forward_features(model.normalise(pictures))
        second = model.net.forward_features(model.normalise(pictures))
    assert torch.equal(first, second)
    assert all(module.training for head in heads_of(model.net) for module in head.modules())
    model.eval()
    assert not any(module.training for module in model.net.modules())


def test_only_the_head_moves_when_the_backbone_is_frozen() -> None:
    model = task(freeze="backbone")
    before = {name: tensor.clone() for name, tensor in model.net.state_dict().items()}
    batch = {
        "image": torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)),
        "label": torch.arange(8),
        "counted": torch.ones(8, dtype=torch.bool),
    }
    optimizer = torch.optim.SGD([p for p in model.net.parameters() if p.requires_grad], lr=0.1)
    model.loss(batch, 0).backward()
    optimizer.step()
    moved = {name for name, tensor in model.net.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"head.weight", "head.bias"}


def test_without_freezing_drop_path_is_on_and_every_parameter_trains() -> None:
    model = task(drop_path=0.9)
    model.train()
    pictures = torch.zeros(64, 3, 32, 32)
    with torch.no_grad():
        torch.manual_seed(0)
        first, second = model.net(pictures), model.net(pictures)
    assert not torch.equal(first, second)
    assert all(parameter.requires_grad for parameter in model.net.parameters())
