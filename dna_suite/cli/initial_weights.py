"""Weights that a run starts from, read once, put into the network when it is built, and told about once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import nn

from dna_suite.backbones.load_report import LoadReport
from dna_suite.backbones.weights import load_into, read_weights
from dna_suite.cli.start import Start
from dna_suite.errors import DnaError
from dna_suite.tasks.base import Task


class InitialWeights:
    """The weights of a run folder or file, for one network.

    Args:
        start: where they are.
        whole: they are evaluated as they are, so no tensor may be re-initialised.

    Raises:
        DnaError: the file cannot be read.
    """

    def __init__(self, start: Start, *, whole: bool) -> None:
        self.start = start
        self.whole = whole
        self.weights = read_weights(start.path, sign=start.sign)
        self.report: LoadReport | None = None

    def filler(self, task: Task, tell: Callable[[str], None]) -> Callable[[nn.Module], None]:
        """What fills the task's network, and tells what became of each tensor."""

        def fill(net: nn.Module) -> None:
            weights = self.weights
            classes = weights.classes
            if classes is not None and classes != task.classes and len(classes) == len(task.classes):
                # Rows of a head belong to class names, not to positions; a head of another length is left out anyway.
                body = {name: tensor for name, tensor in weights.tensors.items() if not name.startswith("head")}
                weights = dataclasses.replace(weights, tensors=body)
                tell(f"{weights.source}: its head has as many classes, of other names, and is left out")
            self.report = load_into(net, weights, task.attention, drop=self.start.drop, allow=self.start.allow)
            if self.whole and self.report.reinitialised:
                lost = ", ".join(self.report.reinitialised)
                raise DnaError(f"{self.start.path} has no weights for {lost}: nothing to evaluate")
            for line in self.report.lines():
                tell(line)

        return fill

    def describe(self) -> dict[str, Any]:
        """Where the run started, and what became of each tensor, as plain values; after the network is built."""
        assert self.report is not None
        return {"path": self.start.path, "recipe": (self.weights.record or {}).get("recipe"), **self.report.plain()}
