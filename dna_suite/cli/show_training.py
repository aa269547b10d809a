"""What `dna show` says of training: batch, steps, rates, optimiser groups, duration."""

from __future__ import annotations

from typing import Any

from dna_suite.cli.recipe import Recipe
from dna_suite.data.base import limit_batches
from dna_suite.data.global_batch import GlobalBatch, count
from dna_suite.data.order import EpochBatches
from dna_suite.spec import OptimSpec, ScheduleSpec
from dna_suite.tasks.optim import group_parameters, rates, scaled_lr


def training_lines(
    task: Any, net: Any, data: Any, length: int, processes: int, recipe: Recipe, images_per_second: float | None
) -> list[str]:
    """The lines of the answer that are about training.

    Args:
        task: the LightningModule.
        net: its network.
        data: the data module.
        length: training samples of an epoch.
        processes: processes that share the batch.
        recipe: the merged recipe.
        images_per_second: training speed of one process; None leaves the duration out.
    """
    trainer = recipe.values["trainer"]
    batch = GlobalBatch(data.batch, processes, trainer.get("accumulate_grad_batches", 1))
    epochs = trainer.get("max_epochs", 1)
    steps = steps_of(length, batch, trainer.get("limit_train_batches", 1.0))
    peak = scaled_lr(task.optim, batch.samples)
    lines = [
        f"effective batch: {batch}",
        f"steps:           {steps:,} an epoch, {steps * epochs:,} in {epochs} epochs",
        f"peak rate:       {peak:.4g} (lr {task.optim.lr:g} at batch {task.optim.lr_batch}, scaling {task.optim.lr_scaling})",
        f"schedule:        {schedule_text(task.schedule)}",
        f"rate at epoch:   {rates_text(task.schedule, peak, steps, epochs)}",
        f"drop path:       {drop_path_text(task)}",
        f"weight average:  {'off' if task.ema is None else f'decay {task.ema:g}'}",
        f"optimiser:       {optimiser_text(task.optim)}, clipping {trainer.get('gradient_clip_val')}",
        *group_lines(net, task.optim),
    ]
    if images_per_second:
        seconds = length * epochs / (images_per_second * processes)
        hours = seconds * processes / 3600
        lines.append(f"duration:        {seconds / 86400:.2f} days, {hours:,.1f} GPU hours at {images_per_second:g} pictures/s")
    return lines


def steps_of(length: int, batch: GlobalBatch, asked: float) -> int:
    """Optimiser steps of an epoch.

    Args:
        length: training samples.
        batch: samples of an optimiser step.
        asked: the trainer's limit of training batches.
    """
    limit = limit_batches(len(EpochBatches(length, batch.batch, world=batch.processes)), asked)
    return EpochBatches(length, batch.batch, world=batch.processes, accumulate=batch.accumulate, limit=limit).steps_per_epoch


def schedule_text(schedule: ScheduleSpec) -> str:
    """Warm-up, curve and phase in a row."""
    late = f"{count(schedule.lag, 'epoch')} late" if schedule.lag else "no lag"
    start = " (begun with the run)" if schedule.cosine_from == "start" else ""
    curve = f"cosine to {schedule.min_lr:g}{start}" if schedule.name == "cosine" else "constant"
    warm_up = f"warm-up of {schedule.warmup_epochs:g} epochs from {schedule.warmup_lr:g}"
    return f"{warm_up}, {curve}, a rate for each {schedule.every}, {late}"


def rates_text(schedule: ScheduleSpec, peak: float, steps: int, epochs: int) -> str:
    """The rate at the start of the first two, the first after the warm-up, the middle and the last epoch."""
    curve = list(rates(epochs, steps, peak, schedule))
    warm = round(schedule.warmup_epochs) + schedule.lag
    picked = sorted({0, 1, warm, epochs // 2, epochs - 1} & set(range(epochs)))
    return ", ".join(f"{epoch} {curve[epoch]:.4g}" for epoch in picked)


def drop_path_text(task: Any) -> str:
    """Stochastic depth over the blocks."""
    if task.drop_path == 0:
        return "off"
    return f"{task.drop_path:g} in every block" if task.drop_path_shape == "constant" else f"rising from 0 to {task.drop_path:g}"


def optimiser_text(optim: OptimSpec) -> str:
    """Name and rules."""
    layer_decay = "off" if optim.layer_decay == 1 else f"{optim.layer_decay:g}"
    pulled = "all parameters" if optim.decay == "all" else optim.decay
    return f"{optim.name}, weight decay {optim.weight_decay:g} of {pulled}, layer decay {layer_decay}"


def group_lines(net: Any, optim: OptimSpec) -> list[str]:
    """One line per optimiser group: rate, decay, tensors, numbers, and the kinds of parameters in it."""
    sizes = {name: parameter.numel() for name, parameter in net.named_parameters()}
    groups = group_parameters(net, optim)
    width = max(len(group.name) for group in groups)
    lines = []
    for group in groups:
        kinds = sorted({".".join(name.split(".")[-2:]) if "." in name else name for name in group.names})
        rate = "" if optim.layer_decay == 1 else f" rate x {group.scale:.4f}"
        total = sum(sizes[name] for name in group.names)
        tensors = f"{count(len(group.names), 'tensor')}, {total:,} numbers ({', '.join(kinds)})"
        lines.append(f"  {group.name:<{width}}{rate} decay {group.weight_decay:g}: {tensors}")
    return lines
