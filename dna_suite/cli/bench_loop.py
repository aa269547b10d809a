"""What a training step costs inside `dna fit`, against the same step in a bare loop."""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import tempfile
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from dna_suite.cli.argv import split_training
from dna_suite.cli.bench_timing import Cost, compare, now, summarise
from dna_suite.cli.checks import check_recipe
from dna_suite.cli.session import Session, quieten
from dna_suite.cli.train import Plan, choose_folder, prepare_recipe
from dna_suite.tasks.optim import build_optimizer, build_schedule

RECIPE = "tasks/digits.yaml"
# The first steps of an epoch fill caches.
WARM_UP = 2
ROUNDS = 15


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
    """Median cost of a digits step in the trainer with all its callbacks over that in a bare loop.

    Args:
        options: rounds, which are epochs of 20 steps, and threads.
    """
    rounds, threads = options.rounds or ROUNDS, options.threads
    torch.set_num_threads(threads)
    quieten()
    timer = Interleaved()
    with tempfile.TemporaryDirectory() as folder:
        words = ["--config", RECIPE, f"--runs={folder}", f"--trainer.max_epochs={rounds}"]
        arguments = split_training("fit", words)
        recipe = prepare_recipe("fit", arguments)
        task, data = check_recipe(recipe, arguments.trust_imports)
        plan = Plan("fit", ["dna", "fit", *words], arguments, recipe, task, data, choose_folder("fit", arguments, recipe))
        session = Session(plan)
        trainer: Any = session.trainer
        trainer.callbacks.insert(0, timer)
        with contextlib.redirect_stdout(io.StringIO()):
            session.fit()
    count = min(len(timer.bare), len(timer.fit))
    costs = {"fit": timer.fit[:count], "bare": timer.bare[:count]}
    found = compare(costs["fit"], costs["bare"])
    fit, bare = (summarise(costs[side])["ms"] for side in ("fit", "bare"))
    line = f"a step in dna fit {fit:.2f} ms, in a bare loop {bare:.2f} ms; ratio {found['ratio']:.3f}"
    return {
        "line": f"{line}, of CPU time {found['cpu_ratio']:.3f} (medians of {count} pairs, {threads} threads)",
        "recipe": RECIPE,
        "threads": threads,
        "pairs": count,
        "fit_ms": fit,
        "bare_ms": bare,
        "ratio": found["ratio"],
        "cpu_ratio": found["cpu_ratio"],
        "ratio_quartiles": [found["quartiles"][0], found["ratio"], found["quartiles"][1]],
    }
