"""What a training step costs inside `dna fit`, against the same step in a bare loop."""

from __future__ import annotations

import contextlib
import copy
import io
import statistics
import tempfile
from time import perf_counter, process_time
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from dna_suite.cli.argv import split_training
from dna_suite.cli.checks import check_recipe
from dna_suite.cli.session import Session, quieten
from dna_suite.cli.train import Plan, choose_folder, prepare_recipe
from dna_suite.tasks.optim import build_optimizer, build_schedule

RECIPE = "tasks/digits.yaml"
# The first steps of an epoch fill caches.
WARM_UP = 2
Cost = tuple[float, float]


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
            self.fit.append(since(self._since, began))
        loss = self.task.loss(self.batch, batch_idx)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.task.net.parameters(), trainer.gradient_clip_val)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.batch = next(self.batches, None)
        self._since = now()
        if batch_idx > WARM_UP:
            self.bare.append(since(began, self._since))


def now() -> Cost:
    """Seconds on the wall's clock and of this process's CPU time."""
    return perf_counter(), process_time()


def since(before: Cost, after: Cost) -> Cost:
    """What passed between two readings."""
    return after[0] - before[0], after[1] - before[1]


def measure(rounds: int, threads: int) -> dict[str, Any]:
    """Median cost of a digits step in the trainer with all its callbacks over that in a bare loop.

    Args:
        rounds: epochs of 20 steps.
        threads: threads of torch.
    """
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
    pairs = list(zip(timer.bare, timer.fit, strict=False))
    ratio, cpu_ratio = (statistics.median(fit[clock] / bare[clock] for bare, fit in pairs) for clock in (0, 1))
    fit, bare = (1e3 * statistics.median(wall for wall, _ in costs) for costs in (timer.fit, timer.bare))
    line = f"a step in dna fit {fit:.2f} ms, in a bare loop {bare:.2f} ms; ratio {ratio:.3f}, of CPU time {cpu_ratio:.3f}"
    return {
        "line": f"{line} (medians of {len(pairs)} pairs, {threads} threads)",
        "recipe": RECIPE,
        "threads": threads,
        "pairs": len(pairs),
        "fit_ms": fit,
        "bare_ms": bare,
        "ratio": ratio,
        "cpu_ratio": cpu_ratio,
        "ratio_quartiles": statistics.quantiles((fit[0] / bare[0] for bare, fit in pairs), n=4),
    }
