"""Optimiser groups and the learning rate of each optimiser step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
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
        name: decay or no_decay.
        weight_decay: decoupled weight decay of its parameters.
        names: the parameters' names in the model.
    """

    name: str
    weight_decay: float
    names: tuple[str, ...]


def decays(name: str, parameter: torch.Tensor) -> bool:
    """Whether a parameter is a matrix that weight decay pulls: not a bias, norm, token, position table or per-head scalar."""
    return parameter.ndim > 1 and not name.endswith(TOKENS_AND_TABLES)


def group_parameters(model: nn.Module, weight_decay: float) -> list[Group]:
    """Every trainable parameter in exactly one group.

    Args:
        model: the network.
        weight_decay: decay of the matrices; the second group has none.
    """
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    with_decay = tuple(name for name, parameter in named if decays(name, parameter))
    without = tuple(name for name, parameter in named if not decays(name, parameter))
    groups = (Group("decay", weight_decay, with_decay), Group("no_decay", 0.0, without))
    return [group for group in groups if group.names]


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
    warmup = round(schedule.warmup_epochs * steps_per_epoch)
    if step < warmup:
        return schedule.warmup_lr + (peak - schedule.warmup_lr) * step / warmup
    if schedule.name == "constant":
        return peak
    progress = min(1.0, (step - warmup) / max(1, epochs * steps_per_epoch - warmup))
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
        {"params": [parameters[name] for name in group.names], "weight_decay": group.weight_decay}
        for group in group_parameters(model, optim.weight_decay)
    ]
    if optim.name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=(optim.beta1, optim.beta2), eps=optim.eps, foreach=True)
    if optim.name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=optim.beta1, nesterov=True, foreach=True)
    raise DnaError(f"model.optim.name {optim.name!r}: adamw or sgd")


def build_schedule(optimizer: Optimizer, *, peak: float, schedule: ScheduleSpec, steps_per_epoch: int, epochs: int) -> LambdaLR:
    """A scheduler that is stepped once per optimiser step and follows `rate_at`."""

    def factor(step: int) -> float:
        return rate_at(step, peak=peak, schedule=schedule, steps_per_epoch=steps_per_epoch, epochs=epochs) / peak

    return LambdaLR(optimizer, factor)


def rates(epochs: int, steps_per_epoch: int, peak: float, schedule: ScheduleSpec) -> Iterator[float]:
    """The rate at the start of each epoch."""
    for epoch in range(epochs):
        yield rate_at(epoch * steps_per_epoch, peak=peak, schedule=schedule, steps_per_epoch=steps_per_epoch, epochs=epochs)
