"""One training command from its plan to its last line: build, compare, run, record."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from dna_suite.catalogue import Target
from dna_suite.cli.agreement import (
    inherit_normalisation,
    optimisation_of,
    other_normalisation,
    require_same_classes,
    require_same_network,
    require_same_optimisation,
)
from dna_suite.cli.description import describe_run
from dna_suite.cli.initial_weights import InitialWeights
from dna_suite.cli.keys import keys_of
from dna_suite.cli.lightning import SuiteCLI, located, restrict_imports
from dna_suite.cli.quiet import quieten
from dna_suite.cli.train import Plan, is_child, say
from dna_suite.data.base import Data
from dna_suite.data.global_batch import GlobalBatch
from dna_suite.data.robustness import RobustnessSets
from dna_suite.errors import DnaError
from dna_suite.runs.bar import RunBar
from dna_suite.runs.checkpoint_files import BEST, best_checkpoint, newest_checkpoint
from dna_suite.runs.checkpoint_io import AtomicCheckpointIO, read_description
from dna_suite.runs.checkpoints import RunCheckpoints
from dna_suite.runs.confusion import write_class_results
from dna_suite.runs.device import check_port, resolve_device
from dna_suite.runs.failures import plain_failures
from dna_suite.runs.folder import RunFolder, write_json
from dna_suite.runs.image_results import write_image_results
from dna_suite.runs.loggers import build_logger
from dna_suite.runs.metrics_csv import MetricsCsv
from dna_suite.runs.predictions import PredictionWriter
from dna_suite.runs.record import accelerator_names, environment, hardware, write_result
from dna_suite.runs.robustness_files import write_robustness_files
from dna_suite.runs.signals import Signals, Stopped, cluster_plugins
from dna_suite.runs.step_seed import StepSeed
from dna_suite.runs.summary import print_summary
from dna_suite.runs.train_log import TrainLog
from dna_suite.runs.weight_average import WeightAverage
from dna_suite.tasks.base import Task
from dna_suite.tasks.classification import ImageClassification
from dna_suite.tasks.optim import scaled_lr
from dna_suite.tasks.robustness import Robustness


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
        self.train_log = TrainLog()
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
        self.initial = InitialWeights(plan.start, whole=plan.command != "fit") if plan.start else None
        self._inherit()
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
        self._check_batch()
        self._build()
        self._open_folder()
        self._say_what()
        self.trainer.fit(
            self.task, datamodule=self.data, ckpt_path=str(self.checkpoint) if self.checkpoint else None, weights_only=True
        )
        best = self.checkpoints.best
        metrics = {} if best is None else {name: tuple(entry) for name, entry in best["metrics"].items()}
        training: dict[str, Any] = {
            "epochs": self.trainer.current_epoch,
            "steps": self.trainer.global_step,
            "seconds": round(time.monotonic() - self.started, 1),
            "finished": True,
        }
        if best is not None:
            training["selected_on"] = self.data.source("val")
            training["selected_on_test"] = self.data.source("val") == self.data.source("test")
        if self.train_log.skipped is not None:
            training["skipped_steps"] = self.train_log.skipped.count
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
        self._write_class_results(place)
        self._write_image_results(place)
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
            shown += [StepSeed(seed), self.train_log]
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
        if self.plan.command == "fit" and self.task.ema is not None:
            # First, so that whatever looks at the weights after a step finds the average up to date.
            trainer: Any = self.trainer
            trainer.callbacks.insert(0, WeightAverage(self.task.ema, self.task.ema_warmup))
        if isinstance(self.data, RobustnessSets):
            self.data.take_classes(self._source_classes())
        if self.plan.command == "predict":
            self.task.classes = list(self.stored["classes"])
        elif self.stored:
            require_same_classes(self.stored["classes"], list(self.data.classes), str(self.checkpoint))
        if self.stored:
            self.task.adopt(self.data)
            require_same_network(self.stored, self.task.describe_own(), str(self.checkpoint))
        note = other_normalisation(self._source_normalisation(), self.data.transform())
        if note:
            self._tell(note)
        if self.initial:
            self.task.initial_weights = self.initial.filler(self.task, self._tell)

    def _inherit(self) -> None:
        """Mean and deviation come with the weights where the recipe says nothing of them; a run that goes on has its own."""
        if self.plan.command == "fit" and self.stored:
            return
        other_task = self.recipe.values["task"] != self.stored.get("task", self.recipe.values["task"])
        if other_task and "size" in keys_of(self.plan.data):
            # A run's recipe may leave the size to its data set's default, which is another data set's here.
            self.recipe.values["data"]["size"] = self.stored["backbone"]["image_size"]
        note = inherit_normalisation(self.recipe, keys_of(self.plan.data), self._source_normalisation())
        if note and (self.initial or self.plan.arguments.configs):
            self._tell(note)

    def _source_normalisation(self) -> Mapping[str, Any]:
        """Mean and deviation that the weights in use were trained under; empty where nothing says so."""
        return self.initial.weights.normalisation if self.initial else self.stored.get("transform") or {}

    def _source_classes(self) -> list[str] | None:
        """Class names of the weights in use; None where nothing says them."""
        return self.initial.weights.classes if self.initial else self.stored["classes"]

    def _tell(self, line: str) -> None:
        """A line for the user, from the first process only."""
        if not is_child():
            say(line)

    def _build(self) -> None:
        """Find the data and build the network, so that what is wrong with either is told before anything is written."""
        self.data.prepare_data()
        self.data.counts()
        for note in self.data.notes if not is_child() else ():
            say(note)
        self.task.adopt(self.data)
        self.task.configure_model()

    def _say_what(self) -> None:
        """A table of the network, the global batch, and both sides of a scaled learning rate."""
        if is_child():
            return
        assert self.task.net is not None
        print_summary(self.task.net, self.task.describe_own())
        optim, batch = self.task.optim, self._global_batch()
        say(f"global batch {batch}")
        if optim.lr_scaling != "none":
            peak = scaled_lr(optim, batch.samples)
            rule = f"{optim.lr_scaling} from {optim.lr:g} at batch {optim.lr_batch}"
            say(f"peak rate {peak:.4g} at global batch {batch.samples} ({rule})")

    def _check_batch(self) -> None:
        """Refuse another global batch than the recipe asks for, before anything is written."""
        problem = self._global_batch().mismatch(self.data.wanted_batch)
        if problem:
            raise DnaError(located(problem, self.recipe))

    def _global_batch(self) -> GlobalBatch:
        return GlobalBatch(self.data.batch, self.trainer.world_size, self.trainer.accumulate_grad_batches)

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
            if self.initial:
                write_json(self.folder.start, self.initial.describe())
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
        """Where an evaluation's result goes: the run itself, or evaluations/RECIPE of it for another task or recipe."""
        task, recipe = self.recipe.values["task"], self.recipe.name
        if task == self.stored.get("task", task) and recipe == self.stored.get("recipe", recipe):
            return self.folder.path
        return RunFolder(self.folder.path).evaluation(recipe)

    def _write(self, folder: Path, metrics: dict[str, Any], **more: Any) -> None:
        if self.trainer.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
            described = describe_run(self.recipe, self.task, self.data, self.folder)
            write_result(folder, described, metrics, machine=hardware(accelerator_names()), **more)

    def _write_class_results(self, folder: Path) -> None:
        """Files of the results per class, where the test counted them."""
        if not isinstance(self.task, ImageClassification) or self.task.confusions is None or not self.trainer.is_global_zero:
            return
        title = f"{self.data.name}, test: {self.task.attention.label}"
        line = write_class_results(folder, self.task.classes, self.task.confusions, title)
        if line:
            self._tell(line)

    def _write_image_results(self, folder: Path) -> None:
        """What came out for each picture, where the test keeps that, so that it can be scored again without the model."""
        if isinstance(self.data, RobustnessSets) and isinstance(self.task, Robustness) and self.trainer.is_global_zero:
            write_image_results(folder, self.task.part_results, self.data)
            line = write_robustness_files(folder, self.task.part_results, self.task.attention.label)
            if line:
                self._tell(line)

    def _finish(self, line: str) -> None:
        if self.data.skipped:
            say(f"{len(self.data.skipped)} unreadable pictures were skipped, first {self.data.skipped[0]}")
        if self.trainer.is_global_zero:
            print(line, flush=True)
