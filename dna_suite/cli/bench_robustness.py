"""What a robustness test costs beyond the network: keeping each picture's result, and scoring them all."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torchmetrics.functional.classification import binary_auroc, binary_average_precision, binary_calibration_error

from dna_suite.cli.bench_timing import compare, summarise, take_turns
from dna_suite.data.parts import Parts
from dna_suite.data.robustness import RobustnessSets
from dna_suite.data.robustness_folders import PUBLISHED
from dna_suite.metrics.calibration import aurra, calibration_error
from dna_suite.metrics.ood import score_unknown
from dna_suite.metrics.robustness import ImageResults, KeptResults, PartResults, score_parts
from dna_suite.tasks.robustness import Robustness

ROUNDS = 7
BATCH, CLASSES = 64, 1000
PICTURES = 50_000


class ListedSets(RobustnessSets):
    """A, R, O and val with as many pictures and classes as published, none of which is read."""

    def __init__(self) -> None:
        super().__init__(eval_batch=BATCH)
        generator = np.random.default_rng(0)
        of = np.repeat(np.arange(4, dtype=np.int16), [PUBLISHED[key].pictures for key in self.sets])
        self.columns = {key: np.sort(generator.choice(CLASSES, 200, replace=False)) for key in self.sets}
        labels = np.stack([self.columns[key] for key in self.sets])[of, generator.integers(200, size=len(of))]
        self._parts = Parts(self.sets, self.sets, of, labels, np.empty((0, 1), dtype=np.int64))
        self._samples["test", self.seed] = SimpleNamespace(labels=labels)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """CPU time that a batch takes beyond the forward pass, and the time of all metrics on 50,000 pictures.

    Args:
        options: rounds and threads.
    """
    torch.set_num_threads(options.threads)
    rounds = options.rounds or ROUNDS
    step, forward = step_and_forward(ListedSets())
    costs = take_turns({"step": step, "forward": forward}, rounds)
    added = [1e3 * (whole.cpu - alone.cpu) for whole, alone in zip(costs["step"], costs["forward"], strict=True)]
    scores = take_turns({"ours": score_published, "metrics": score_all, "torchmetrics": score_with_torchmetrics}, rounds)
    seconds = statistics.median(cost.wall for cost in scores["metrics"])
    result = {
        "threads": options.threads,
        "batch": {"pictures": BATCH, "classes": CLASSES, "added_cpu_ms": statistics.median(added), "rounds": rounds},
        "published_sets": {"pictures": len(ListedSets().parts.of), **summarise(scores["ours"])},
        "metrics": {"pictures": PICTURES, **summarise(scores["metrics"])},
        "torchmetrics": {"pictures": PICTURES, **summarise(scores["torchmetrics"])},
        "metrics_over_torchmetrics": compare(scores["metrics"], scores["torchmetrics"]),
    }
    line = f"a batch of {BATCH} costs {statistics.median(added):.2f} ms of CPU time beyond the forward pass"
    return {"line": f"{line}; all metrics on {PICTURES:,} pictures take {seconds:.3f} s ({options.threads} threads)", **result}


def step_and_forward(data: ListedSets) -> tuple[Callable[[], None], Callable[[], object]]:
    """A test step on a network that gives ready logits, and that network alone; each call is the next batch."""
    task = Robustness("vit_base")
    task.trainer = SimpleNamespace(datamodule=data, strategy=None)  # type: ignore[assignment]
    logits = torch.randn(BATCH, CLASSES, generator=torch.Generator().manual_seed(0))
    task.net = torch.nn.Identity()
    task.net.forward = lambda images: logits  # type: ignore[assignment]
    task.kept = KeptResults()
    image, counted = torch.zeros(BATCH, 3, 1, 1, dtype=torch.uint8), torch.ones(BATCH, dtype=torch.bool)
    place = 0

    def step() -> None:
        nonlocal place
        index = torch.arange(place, place + BATCH) % len(data.parts.of)
        task.test_step({"image": image, "index": index, "counted": counted}, 0)
        place += BATCH

    return step, lambda: task(image)


def draw_results(pictures: int) -> ImageResults:
    """Seeded results of pictures: over-confident, with a third right."""
    generator = np.random.default_rng(1)
    confidence = generator.random(pictures)
    correct = generator.random(pictures) < confidence**2
    return ImageResults(np.arange(pictures), confidence, correct, correct)


def score_published() -> dict[str, tuple[float, int]]:
    """The scores of A, R and O with as many pictures as published."""
    data = ListedSets()
    return score_parts(PartResults(data.parts.names, data.parts.of, draw_results(len(data.parts.of))))


def score_all() -> list[float]:
    """Every metric of calibration and of unknown pictures, each on 50,000."""
    _, confidence, correct, _ = draw_results(PICTURES)
    errors = [calibration_error(confidence, correct, norm, last) for norm in ("1", "2", "max") for last in (False, True)]
    unknown, known = np.split(-confidence, [PICTURES // 6])
    return [*errors, aurra(confidence, correct), *score_unknown(unknown, known).values()]


def score_with_torchmetrics() -> list[float]:
    """What torchmetrics has of them, with its own definitions of the calibration error."""
    _, confidence, correct, _ = draw_results(PICTURES)
    values, right = torch.from_numpy(confidence), torch.from_numpy(correct).int()
    unknown = (torch.arange(PICTURES) < PICTURES // 6).int()
    errors = [float(binary_calibration_error(values, right, n_bins=500, norm=norm)) for norm in ("l1", "l2", "max")]
    return [*errors, float(binary_auroc(1 - values, unknown)), float(binary_average_precision(1 - values, unknown))]
