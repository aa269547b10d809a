"""What a training step costs inside `dna fit`, against the same step in a bare loop."""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import statistics
import tempfile
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from dna_suite.cli.argv import split_training
from dna_suite.cli.bench_timing import Cost, compare, now, quartiles, summarise
from dna_suite.cli.checks import check_recipe
from dna_suite.cli.session import Session, quieten
from dna_suite.cli.train import Plan, choose_folder, prepare_recipe
from dna_suite.tasks.optim import build_optimizer, build_schedule

RECIPE = "tasks/digits.yaml"
# The first steps of an epoch fill caches.
WARM_UP = 2
# Epochs of 158 steps of the linear layer, and of 20 steps of the recipe's network.
TINY_EPOCHS, ROUNDS = 10, 15


class EightPixels(nn.Module):
    """A linear layer on eight pixels: a network that costs next to nothing, so that the loop's own cost stands out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [n, 10] of pictures [n, 3, h, w]."""
        return self.linear(images[:, 0, 0, :8])


class Interleaved(Callback):
    """Takes a step of a bare loop before each step of the trainer, and times both, so that other load on the machine hits both.

    A step is the task's loss, backward, clipping, optimiser and schedule, and fetching the next batch; in the trainer also every
    hook and the logging every n steps. Saving and validating are between epochs and not part of it.
    """

    def __init__(self) -> None:
        self.bare: list[Cost] = []
        self.fit: list[Cost] = []
        self.task: Any = None
        self._since: Cost | None = None

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """A second iterator over the epoch's batches."""
        if self.task is None:
            # The same task around its own weights.
            self.task = copy.copy(pl_module)
            self.task._modules = {**pl_module._modules, "net": copy.deepcopy(pl_module.net)}
            self.task.trainer = trainer
            self.optimizer = build_optimizer(self.task.net, pl_module.optim, pl_module.optim.lr)
            options = {"schedule": pl_module.schedule, "steps_per_epoch": trainer.num_training_batches}
            peak, epochs = pl_module.optim.lr, trainer.max_epochs
            self.schedule = build_schedule(self.optimizer, peak=peak, epochs=epochs, **options)
        self.batches = iter(trainer.datamodule.train_dataloader())
        self.batch = next(self.batches)
        self._since = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """End the trainer's step before this one, take a bare one, and begin the trainer's next."""
        began = now()
        if self._since is not None and batch_idx > WARM_UP:
            self.fit.append(began - self._since)
        loss = self.task.loss(self.batch, batch_idx)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.task.net.parameters(), trainer.gradient_clip_val)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.batch = next(self.batches, None)
        self._since = now()
        if batch_idx > WARM_UP:
            self.bare.append(self._since - began)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """CPU time that the trainer with all its callbacks adds to a step, and the ratio of whole steps of digits.

    Args:
        options: rounds, which are epochs of the digits recipe, and threads.
    """
    torch.set_num_threads(options.threads)
    quieten()
    tiny = take_steps(EightPixels(), TINY_EPOCHS, "--data.batch=8", "--trainer.limit_val_batches=0")
    digits = take_steps(None, options.rounds or ROUNDS)
    added = [1e3 * (fit.cpu - bare.cpu) for fit, bare in zip(tiny.fit, tiny.bare, strict=True)]
    ratios = compare(digits.fit, digits.bare)
    result = {
        "threads": options.threads,
        "recipe": RECIPE,
        "linear_8": {
            "pairs": len(added),
            "added_cpu_ms": statistics.median(added),
            "added_cpu_ms_mean": statistics.fmean(added),
            "added_cpu_ms_quartiles": quartiles(added),
            "bare": summarise(tiny.bare),
            "fit": summarise(tiny.fit),
        },
        "digits": {**ratios, "bare": summarise(digits.bare), "fit": summarise(digits.fit)},
    }
    line = f"dna fit adds {statistics.median(added):.2f} ms of CPU time to a step (mean {statistics.fmean(added):.2f})"
    share = f"a digits step of {result['digits']['bare']['cpu_ms']:.1f} ms takes {ratios['cpu_ratio']:.3f} times as much"
    return {"line": f"{line}; {share} ({len(added)} and {len(digits.fit)} pairs, {options.threads} threads)", **result}


def take_steps(net: nn.Module | None, epochs: int, *words: str) -> Interleaved:
    """Train the recipe through the session of `dna fit`, with a bare step before each step.

    Args:
        net: a network in place of the recipe's.
        epochs: length of the run.
        words: further words of the command line.
    """
    timer = Interleaved()
    with tempfile.TemporaryDirectory() as folder:
        line = ["--config", RECIPE, f"--runs={folder}", f"--trainer.max_epochs={epochs}", *words]
        arguments = split_training("fit", line)
        recipe = prepare_recipe("fit", arguments)
        task, data = check_recipe(recipe, arguments.trust_imports)
        plan = Plan("fit", ["dna", "fit", *line], arguments, recipe, task, data, choose_folder("fit", arguments, recipe))
        session = Session(plan)
        session.task.net = net
        trainer: Any = session.trainer
        trainer.callbacks.insert(0, timer)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            session.fit()
    count = min(len(timer.bare), len(timer.fit))
    timer.bare, timer.fit = timer.bare[:count], timer.fit[:count]
    return timer
