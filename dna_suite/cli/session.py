"""One training command from its plan to its last line: build, compare, run, record."""

from __future__ import annotations

import dataclasses
import importlib
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from dna_suite.catalogue import Target
from dna_suite.cli.agreement import (
    optimisation_of,
    other_normalisation,
    require_same_classes,
    require_same_network,
    require_same_optimisation,
)
from dna_suite.cli.lightning import SuiteCLI, restrict_imports
from dna_suite.cli.quiet import quieten
from dna_suite.cli.train import Plan, is_child, say
from dna_suite.data.base import Data
from dna_suite.errors import DnaError
from dna_suite.runs.bar import RunBar
from dna_suite.runs.checkpoint_files import BEST, best_checkpoint, newest_checkpoint
from dna_suite.runs.checkpoint_io import AtomicCheckpointIO, read_description
from dna_suite.runs.checkpoints import RunCheckpoints
from dna_suite.runs.device import check_port, resolve_device
from dna_suite.runs.failures import plain_failures
from dna_suite.runs.folder import RunFolder
from dna_suite.runs.loggers import build_logger
from dna_suite.runs.metrics_csv import MetricsCsv
from dna_suite.runs.predictions import PredictionWriter
from dna_suite.runs.record import accelerator_names, environment, hardware, write_result
from dna_suite.runs.signals import Signals, Stopped, cluster_plugins
from dna_suite.runs.step_seed import StepSeed
from dna_suite.runs.summary import grouped_sites, print_summary
from dna_suite.runs.train_log import TrainLog
from dna_suite.tasks.base import Task
from dna_suite.tasks.optim import scaled_lr


def run_plan(plan: Plan) -> int:
    """Run a training command.

    Returns:
        0, or 128 + n where signal n stopped the run.

    Raises:
        DnaError: the user's mistake, or a run that cannot go on.
    """
    quieten()
    session = Session(plan)
    try:
        with plain_failures(session.trainer):
            {"fit": session.fit, "validate": session.evaluate, "test": session.evaluate, "predict": session.predict}[
                plan.command
            ]()
    except Stopped as stop:
        if not is_child():
            say(str(stop))
        return stop.exit_code
    return 0


def load_class(target: Target) -> Any:
    """The class that a catalogue entry names."""
    return getattr(importlib.import_module(target.module), target.name)


class Session:
    """The objects of one training command.

    Args:
        plan: what to do, settled without torch.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.recipe = plan.recipe
        self.folder = plan.folder
        self.stored: dict[str, Any] = {}
        self.checkpoint: Path | None = None
        arguments = plan.arguments
        self.writer = PredictionWriter(Path(arguments.out), arguments.topk) if arguments.out else None
        self.started = time.monotonic()
        self._resolve_device()
        restrict_imports(plan.arguments.trust_imports)
        self.checkpoints = RunCheckpoints(self.folder.checkpoints, self.recipe.values["save_every"])
        if plan.command == "fit" and plan.arguments.resume is not None:
            self.checkpoint = newest_checkpoint(self.folder.checkpoints)
        elif plan.arguments.run:
            self.checkpoint = best_checkpoint(self.folder.checkpoints)
            if self.checkpoint.name != BEST and not is_child():
                say(f"the run was never validated, so it has no {BEST}: using {self.checkpoint}")
        if self.checkpoint:
            self.stored = read_description(self.checkpoint)
        self.cli = SuiteCLI(
            load_class(plan.task),
            load_class(plan.data),
            self.recipe,
            callbacks=self._callbacks(),
            plugins=[*cluster_plugins(), AtomicCheckpointIO()],
            on_parsed=self._agree,
        )
        self.task: Task = self.cli.model
        self.data: Data = self.cli.datamodule
        self.trainer = self.cli.trainer
        self._attach()

    def fit(self) -> None:
        """Train, keep the best checkpoint, write the result."""
        self._build()
        self._open_folder()
        self._say_what()
        self.trainer.fit(
            self.task, datamodule=self.data, ckpt_path=str(self.checkpoint) if self.checkpoint else None, weights_only=True
        )
        best = self.checkpoints.best
        metrics = {} if best is None else {name: tuple(entry) for name, entry in best["metrics"].items()}
        training = {
            "epochs": self.trainer.current_epoch,
            "steps": self.trainer.global_step,
            "seconds": round(time.monotonic() - self.started, 1),
            "finished": True,
        }
        place = {key: best[key] for key in ("metric", "value", "epoch", "step")} if best else None
        self._write(self.folder.path, metrics, best=place, training=training)
        if best is None:
            self._finish(f"{self.folder.path} (no validation was run)")
        else:
            self._finish(f"{self.folder.path}: best {best['metric']} {best['value']:.4f} at epoch {best['epoch'] + 1}")

    def evaluate(self) -> None:
        """Evaluate a run's best checkpoint, or weights, on the validation or test part."""
        command = self.plan.command
        run = self.trainer.test if command == "test" else self.trainer.validate
        self._build()
        if not self.plan.arguments.run:
            self._open_folder()
        run(
            self.task,
            datamodule=self.data,
            ckpt_path=str(self.checkpoint) if self.checkpoint else None,
            weights_only=True,
            verbose=False,
        )
        place = self._evaluation_folder()
        self._write(place, self.task.results)
        shown = ", ".join(f"{name} {value:.4f}" for name, (value, _) in self.task.results.items())
        self._finish(f"{place}: {shown} on {max(samples for _, samples in self.task.results.values())} samples")

    def predict(self) -> None:
        """Write one line of JSON for each picture."""
        self.data.predict_input = self.plan.arguments.input
        self.trainer.predict(
            self.task, datamodule=self.data, ckpt_path=str(self.checkpoint), weights_only=True, return_predictions=False
        )
        assert self.writer is not None
        self._finish(f"{self.writer.path}: {self.writer.written} pictures")

    def _resolve_device(self) -> None:
        check_port()
        trainer = self.recipe.values["trainer"]
        accelerator, precision = trainer.get("accelerator", "auto"), str(trainer.get("precision", "32-true"))
        trainer["accelerator"], trainer["precision"], notes = resolve_device(
            accelerator, precision, trainer.get("devices", "auto")
        )
        for note in notes if not is_child() else ():
            say(note)

    def _callbacks(self) -> list[Callback]:
        shown: list[Callback] = [RunBar(), self.checkpoints]
        if self.plan.command == "fit":
            seed = self.recipe.values["seed"]
            shown += [StepSeed(seed), TrainLog()]
        if self.writer is not None:
            shown.append(self.writer)
        requeue = self.recipe.values["requeue"]
        return [*shown, Signals(self.checkpoints, requeue_signal=requeue, requeue=requeue is not None)]

    def _agree(self, values: dict[str, Any]) -> None:
        """Compare the complete configuration with the checkpoint before anything is built."""
        self.optimisation = optimisation_of(values, self.recipe.values["seed"])
        if self.plan.command == "fit" and self.stored:
            require_same_optimisation(self.stored["optimisation"], self.optimisation, str(self.folder.path))

    def _attach(self) -> None:
        """Give task and data what the recipe and the checkpoint decide."""
        self.task.seed = self.data.seed = self.recipe.values["seed"]
        self.task.recipe = self.recipe.name
        self.task.optimisation = self.optimisation
        if self.plan.command == "predict":
            self.task.classes = list(self.stored["classes"])
        elif self.stored:
            require_same_classes(self.stored["classes"], list(self.data.classes), str(self.checkpoint))
        if self.stored:
            self.task.adopt(self.data)
            require_same_network(self.stored, self.task.describe_own(), str(self.checkpoint))
            note = other_normalisation(self.stored["transform"], self.data.transform())
            if note and not is_child():
                say(note)
        if self.plan.arguments.init_from:
            self.task.initial_weights = self._initial_weights()

    def _initial_weights(self) -> Any:
        from dna_suite.backbones.weights import load_into, read_weights

        arguments = self.plan.arguments
        assert arguments.init_from is not None
        weights = read_weights(arguments.init_from)

        def fill(net: Any) -> None:
            nonlocal weights
            classes = (weights.record or {}).get("classes", self.task.classes)
            if classes != self.task.classes:
                # Rows of a head belong to class names, not to positions.
                body = {name: tensor for name, tensor in weights.tensors.items() if not name.startswith("head")}
                weights = dataclasses.replace(weights, tensors=body)
            report = load_into(net, weights, self.task.attention, drop=tuple(arguments.init_drop))
            if self.plan.command != "fit" and report.reinitialised:
                raise DnaError(f"{arguments.init_from} has no weights for {', '.join(report.reinitialised)}: nothing to evaluate")
            for line in report.lines() if not is_child() else ():
                say(line)

        return fill

    def _build(self) -> None:
        """Find the data and build the network, so that what is wrong with either is told before anything is written."""
        self.data.prepare_data()
        self.data.counts()
        for note in self.data.notes if not is_child() else ():
            say(note)
        self.task.adopt(self.data)
        self.task.configure_model()

    def _say_what(self) -> None:
        """A table of the network, and both sides of a scaled learning rate."""
        if is_child():
            return
        assert self.task.net is not None
        print_summary(self.task.net, self.task.describe_own())
        optim = self.task.optim
        batch = self.data.batch * self.trainer.world_size * self.trainer.accumulate_grad_batches
        if optim.lr_scaling != "none":
            peak = scaled_lr(optim, batch)
            say(f"peak rate {peak:.4g} at global batch {batch} ({optim.lr_scaling} from {optim.lr:g} at batch {optim.lr_batch})")

    def _open_folder(self) -> None:
        """Claim the run folder and attach the loggers; the first thing that is written."""
        arguments = self.plan.arguments
        if not is_child():
            resume = arguments.resume is not None or self.plan.command != "fit"
            self.folder.create(
                self.recipe.ordered(),
                self.plan.words,
                environment(accelerator_names()),
                overwrite=arguments.overwrite,
                resume=resume,
            )
            if arguments.resume is not None:
                say(
                    f"resuming from {self.checkpoint}"
                    if self.checkpoint
                    else "nothing to resume yet: starting from the beginning"
                )
        name = self.recipe.values["logger"]
        extra = [build_logger(name, self.folder.path)] if name else []
        self.trainer.loggers = [MetricsCsv(self.folder.metrics), *extra] if self.plan.command == "fit" else []

    def _evaluation_folder(self) -> Path:
        """Where an evaluation's result goes: the run itself, or evaluations/ of it for another task or recipe."""
        stored_recipe = self.stored.get("recipe", self.recipe.name)
        if (
            self.recipe.values["task"] == self.stored.get("task", self.recipe.values["task"])
            and stored_recipe == self.recipe.name
        ):
            return self.folder.path
        name = self.recipe.values["task"] if self.recipe.values["task"] != self.stored["task"] else self.recipe.name
        return RunFolder(self.folder.path).evaluation(name)

    def _write(self, folder: Path, metrics: dict[str, Any], **more: Any) -> None:
        if self.trainer.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
            write_result(folder, self._description(), metrics, machine=hardware(accelerator_names()), **more)

    def _description(self) -> dict[str, Any]:
        from dna_suite.backbones.cost import count_multiply_adds, count_parameters

        described = self.task.describe()
        net = self.task.net
        assert net is not None
        return {
            "recipe": self.recipe.name,
            "task": described["task"],
            "attention": described["attention"],
            "label": self.task.attention.label,
            "backbone": described["backbone"],
            "seed": self.recipe.values["seed"],
            "toy": self.data.toy,
            "data": {
                "name": self.data.name,
                "root": self.data.root,
                "counts": self.data.counts(),
                "subset": self.data.subset,
                "test_from": self.data.source("test"),
                "skipped": len(self.data.skipped),
            },
            "parameters": count_parameters(net),
            "multiply_adds": count_multiply_adds(net, described["backbone"]["image_size"]),
            "transform": described["transform"],
            "sites": grouped_sites(net),
        }

    def _finish(self, line: str) -> None:
        if self.data.skipped:
            say(f"{len(self.data.skipped)} unreadable pictures were skipped, first {self.data.skipped[0]}")
        if self.trainer.is_global_zero:
            print(line, flush=True)
