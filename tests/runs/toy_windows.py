"""Gradients of optimiser steps, seen in a trainer and computed by a bare loop."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import Callback
from torch import Tensor, nn
from toy_loop import CLASSES, WIDTH, Rows

from dna_suite.data.order import EpochBatches


class Gradients(Callback):
    """Keeps the gradient of every optimiser step."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.seen.append(torch.cat([weight.grad.flatten() for weight in pl_module.parameters()]).clone())


def make_net() -> nn.Module:
    torch.manual_seed(5)
    return nn.Linear(WIDTH, CLASSES).double()


def bare_gradients(length: int, batch: int, accumulate: int, epochs: int = 1) -> list[Tensor]:
    """One step over all samples of a window at a time, with the optimiser that the toy task has."""
    net, rows = make_net(), Rows(length)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    sampler, gradients = EpochBatches(length, batch), []
    batches = [sampler.keys(epoch, sampler.order(epoch), b) for epoch in range(epochs) for b in range(len(sampler))]
    firsts = [epoch * len(sampler) + b for epoch in range(epochs) for b in range(0, len(sampler), accumulate)]
    for first, last in zip(firsts, [*firsts[1:], len(batches)], strict=True):
        indices = [index for keys in batches[first:last] for _, index, _ in keys]
        optimizer.zero_grad()
        F.cross_entropy(net(rows.rows[indices].double()), rows.labels[indices]).backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in net.parameters()]))
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / len(gradients)
        optimizer.step()
    return gradients
