"""Optimiser groups and the learning rate of each optimiser step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from timm.models import group_parameters as group_by_layer
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from dna_suite.errors import DnaError
from dna_suite.spec import OptimSpec, ScheduleSpec

TOKENS_AND_TABLES = ("pos_embed", "cls_token", "dist_token", "reg_token", "relative_position_bias_table")


@dataclass(frozen=True)
class Group:
    """One optimiser group.

    Args:
        name: decay or no_decay, behind the layer where the rate depends on it.
        weight_decay: decoupled weight decay of its parameters.
        names: the parameters' names in the model.
        scale: its rate over that of the run.
    """

    name: str
    weight_decay: float
    names: tuple[str, ...]
    scale: float = 1.0


def check_numbers(optim: OptimSpec, schedule: ScheduleSpec) -> None:
    """Refuse numbers that no run can use.

    Raises:
        DnaError: the key, its value and what is allowed.
    """
    from_0 = (lambda value: 0 <= value < math.inf, "a number from 0")
    above_0 = (lambda value: 0 < value < math.inf, "a number above 0")
    below_1 = (lambda value: 0 <= value < 1, "from 0 up to, not including, 1")
    factor = (lambda value: 0 < value <= 1, "above 0, at most 1, which is off")
    rules = {"lr": above_0, "lr_batch": above_0, "layer_decay": factor, "beta1": below_1, "beta2": below_1}
    for section, spec in (("optim", optim), ("schedule", schedule)):
        for key, value in vars(spec).items():
            fits, allowed = rules.get(key, from_0)
            if not isinstance(value, str) and not fits(value):
                raise DnaError(f"model.{section}.{key} {value}: {allowed}")


def decays(name: str, parameter: torch.Tensor) -> bool:
    """Whether a parameter is a matrix that weight decay pulls: not a bias, norm, token, position table or per-head scalar."""
    return parameter.ndim > 1 and not name.endswith(TOKENS_AND_TABLES)


def layer_numbers(model: nn.Module) -> dict[str, int]:
    """Parameter -> its layer, as timm groups them: 0 stands before the first block, the highest number is the head's.

    timm's own groups carry the factor as `lr_scale`, which only timm's schedulers read.

    Raises:
        DnaError: the network does not say which layer its parameters belong to.

    Source: huggingface/pytorch-image-models#2532.
    """
    matcher = getattr(model, "group_matcher", None)
    if matcher is None:
        raise DnaError(f"model.optim.layer_decay: {type(model).__name__} has no order of layers; 1 is off")
    return group_by_layer(model, matcher(coarse=False), reverse=True)


def group_parameters(model: nn.Module, optim: OptimSpec) -> list[Group]:
    """Every trainable parameter in exactly one group, those with the full rate first.

    Args:
        model: the network.
        optim: what decays, and the factor from a layer to the one before it.
    """
    layers = {} if optim.layer_decay == 1 else layer_numbers(model)
    last = max(layers.values(), default=0)
    members: dict[tuple[int, bool], list[str]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            place = layers.get(name, last), optim.decay == "all" or decays(name, parameter)
            members.setdefault(place, []).append(name)
    return [
        Group(
            f"{f'layer {layer} ' if layers else ''}{'decay' if decayed else 'no_decay'}",
            optim.weight_decay if decayed else 0.0,
            tuple(names),
            optim.layer_decay ** (last - layer),
        )
        for (layer, decayed), names in sorted(members.items(), reverse=True)
    ]


def scaled_lr(optim: OptimSpec, global_batch: int) -> float:
    """The peak rate for a global batch: `lr` belongs to `lr_batch`.

    Raises:
        DnaError: the scaling rule is unknown.
    """
    ratio = global_batch / optim.lr_batch
    factors = {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}
    if optim.lr_scaling not in factors:
        raise DnaError(f"model.optim.lr_scaling {optim.lr_scaling!r}: none, linear or sqrt")
    return optim.lr * factors[optim.lr_scaling]


def rate_at(step: int, *, peak: float, schedule: ScheduleSpec, steps_per_epoch: int, epochs: int) -> float:
    """The learning rate of one optimiser step.

    The warm-up rises in a straight line from `warmup_lr` at step 0 and reaches the peak at its end; the cosine then falls to
    `min_lr` at the end of the last epoch.

    Args:
        step: optimiser steps done before this one.
        peak: rate after the warm-up.
        schedule: shape of the curve.
        steps_per_epoch: optimiser steps of one epoch.
        epochs: length of the run.
    """
    if schedule.every == "epoch":
        step -= step % steps_per_epoch
    step = max(0, step - schedule.lag * steps_per_epoch)
    warmup = round(schedule.warmup_epochs * steps_per_epoch)
    if step < warmup:
        return schedule.warmup_lr + (peak - schedule.warmup_lr) * step / warmup
    if schedule.name == "constant":
        return peak
    start = warmup if schedule.cosine_from == "warmup" else 0
    progress = min(1.0, (step - start) / max(1, epochs * steps_per_epoch - start))
    return schedule.min_lr + 0.5 * (peak - schedule.min_lr) * (1 + math.cos(math.pi * progress))


def build_optimizer(model: nn.Module, optim: OptimSpec, lr: float) -> Optimizer:
    """AdamW or SGD over the groups of `group_parameters`.

    Args:
        model: the network.
        optim: names and numbers.
        lr: peak rate, already scaled.

    Raises:
        DnaError: the optimiser is unknown.
    """
    parameters = dict(model.named_parameters())
    groups = [
        {
            "params": [parameters[name] for name in group.names],
            "weight_decay": group.weight_decay,
            "lr": lr * group.scale,
        }
        for group in group_parameters(model, optim)
    ]
    if optim.name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=(optim.beta1, optim.beta2), eps=optim.eps, foreach=True)
    if optim.name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=optim.beta1, nesterov=optim.beta1 > 0, foreach=True)
    raise DnaError(f"model.optim.name {optim.name!r}: adamw or sgd")


def build_schedule(optimizer: Optimizer, *, peak: float, schedule: ScheduleSpec, steps_per_epoch: int, epochs: int) -> LambdaLR:
    """A scheduler that is stepped once per optimiser step and follows `rate_at`, times the scale of each group."""

    def factor(step: int) -> float:
        return rate_at(step, peak=peak, schedule=schedule, steps_per_epoch=steps_per_epoch, epochs=epochs) / peak

    return LambdaLR(optimizer, factor)


def rates(epochs: int, steps_per_epoch: int, peak: float, schedule: ScheduleSpec) -> Iterator[float]:
    """The rate at the start of each epoch."""
    for epoch in range(epochs):
        yield rate_at(epoch * steps_per_epoch, peak=peak, schedule=schedule, steps_per_epoch=steps_per_epoch, epochs=epochs)
