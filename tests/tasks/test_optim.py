"""Optimiser groups, learning rates, and that decay reaches matrices only."""

import pytest
import torch
from torch import nn

from dna_suite.backbones.images import build_image_model
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec, OptimSpec, ScheduleSpec
from dna_suite.tasks.optim import build_optimizer, build_schedule, group_parameters, rate_at, scaled_lr

PAPER = ScheduleSpec(warmup_epochs=5, warmup_lr=1e-6, min_lr=1e-5)


def model() -> nn.Module:
    return build_image_model("vit_digits", size="tiny", attention=AttentionSpec("dna"), num_classes=10, image_size=32)


def test_every_parameter_is_in_exactly_one_group() -> None:
    net = model()
    names = [name for group in group_parameters(net, 0.05) for name in group.names]
    assert sorted(names) == sorted(name for name, _ in net.named_parameters())
    assert len(names) == len(set(names))


def test_only_matrices_decay() -> None:
    groups = {group.name: group for group in group_parameters(model(), 0.05)}
    assert groups["no_decay"].weight_decay == 0
    kinds = {name.rsplit(".", 1)[-1] for name in groups["no_decay"].names}
    assert kinds == {"bias", "weight", "alpha", "pos_embed", "cls_token"}
    assert all("norm" in name for name in groups["no_decay"].names if name.endswith("weight"))
    assert {name.split(".")[-2] for name in groups["decay"].names} == {
        "q",
        "q_neg",
        "k",
        "v",
        "v_neg",
        "proj",
        "fc1",
        "fc2",
        "head",
    }


def test_frozen_parameters_are_left_out() -> None:
    net = model()
    net.head.requires_grad_(False)
    assert not any("head" in name for group in group_parameters(net, 0.05) for name in group.names)


def test_alpha_does_not_move_under_decay_and_no_gradient() -> None:
    net = model()
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    optimizer = build_optimizer(net, OptimSpec(weight_decay=0.075), lr=0.1)
    for _ in range(10):
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    moved = {name for name, parameter in net.named_parameters() if not torch.equal(parameter, before[name])}
    assert "blocks.0.attn.operator.alpha" not in moved
    assert "blocks.0.attn.q.weight" in moved


@pytest.mark.parametrize(("batch", "accumulate"), [(16, 1), (8, 2), (4, 4)])
def test_the_list_of_rates_does_not_depend_on_accumulation(batch: int, accumulate: int) -> None:
    # Warm-up 1e-6 -> 1e-3 over 5 epochs, cosine to 1e-5 at 300, 64 samples: 4 optimiser steps an epoch whatever the split.
    steps = -(-(64 // batch) // accumulate)
    assert steps == 4
    parameter = nn.Parameter(torch.zeros(2, 2))
    optimizer = torch.optim.SGD([parameter], lr=1e-3)
    schedule = build_schedule(optimizer, peak=1e-3, schedule=PAPER, steps_per_epoch=steps, epochs=300)
    seen = []
    for _ in range(300 * steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert seen[0] == pytest.approx(1e-6, rel=1e-12)
    assert seen[20] == pytest.approx(1e-3, rel=1e-12)
    assert seen[10] == pytest.approx(1e-6 + (1e-3 - 1e-6) / 2, rel=1e-12)
    # The cosine runs over 1,180 steps after the warm-up; half-way it is the mean of its ends.
    assert seen[20 + 590] == pytest.approx((1e-3 + 1e-5) / 2, rel=1e-9)
    assert min(seen[20:]) == seen[-1] >= 1e-5


def test_a_run_without_warm_up_starts_at_the_peak() -> None:
    schedule = ScheduleSpec(warmup_epochs=0, min_lr=0.0)
    assert rate_at(0, peak=0.3, schedule=schedule, steps_per_epoch=2, epochs=2) == 0.3
    assert rate_at(4, peak=0.3, schedule=schedule, steps_per_epoch=2, epochs=2) == 0.0
    assert rate_at(99, peak=0.3, schedule=ScheduleSpec(name="constant"), steps_per_epoch=2, epochs=2) == 0.3


@pytest.mark.parametrize(("rule", "lr"), [("none", 1e-3), ("linear", 2.5e-4), ("sqrt", 5e-4)])
def test_the_rate_belongs_to_its_batch(rule: str, lr: float) -> None:
    assert scaled_lr(OptimSpec(lr=1e-3, lr_batch=1024, lr_scaling=rule), 256) == pytest.approx(lr, rel=1e-12)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(DnaError, match="adamw or sgd"):
        build_optimizer(nn.Linear(2, 2), OptimSpec(name="lion"), 0.1)
    with pytest.raises(DnaError, match="none, linear or sqrt"):
        scaled_lr(OptimSpec(lr_scaling="cubic"), 4)
