"""What several processes must do as one does; run as a script by test_processes.py, once for each number of processes.

Every process pays the imports, so there is one launch for each number: a further check is a function in CHECKS, and what it gives
is compared in test_processes.py with what one process gives.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from lightning.pytorch import Callback
from toy_loop import ToyData, ToyTask, make_trainer
from toy_windows import Gradients, make_net

from dna_suite.cli.main import main as dna
from dna_suite.runs.checkpoints import RunCheckpoints
from dna_suite.runs.signals import Signals, Stopped
from dna_suite.runs.step_seed import StepSeed
from dna_suite.runs.train_log import TrainLog

LENGTH, GLOBAL_BATCH, ACCUMULATE, VALIDATION, EVAL_BATCH, STOP = 50, 12, 2, 5, 2, 5
# Samples of the toy validation, in batches of one: none of two and three processes divides all of them.
COUNTS = (3, 5, 7, 11)
# 180 digits: 26 batches, the last of 5; two batches, one process of three without any.
EVAL_BATCHES = (7, 100)


class TermTo(Callback):
    """Sends TERM to one of the processes in the middle of a window."""

    def __init__(self, rank):
        self.rank = rank

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_rank == self.rank and trainer.global_step == STOP - 1 and batch_idx % ACCUMULATE == 0:
            os.kill(os.getpid(), signal.SIGTERM)


class Validations(Callback):
    def __init__(self):
        self.seen = []

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.seen.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def train_until_term(folder, world, rank):
    """Gradients and validations of the toy task until TERM meets one process, and what each process then makes of it."""
    checkpoints, gradients, validations, log = RunCheckpoints(folder / f"term{rank}"), Gradients(), Validations(), TrainLog()
    callbacks = [StepSeed(0), log, TermTo(rank), gradients, validations, Signals(checkpoints), checkpoints]
    options = {"devices": world, "strategy": "ddp", "accumulate_grad_batches": ACCUMULATE, "gradient_clip_val": None}
    trainer = make_trainer(folder, *callbacks, **options)
    data = ToyData(LENGTH, VALIDATION, GLOBAL_BATCH // world, EVAL_BATCH, noise=0.0, dtype=torch.float64)
    try:
        trainer.fit(ToyTask(make_net(), mixing=False), data)
    except Stopped as stop:
        return {
            "code": stop.exit_code,
            "gradients": [gradient.tolist() for gradient in gradients.seen],
            "validations": validations.seen,
            "samples": log.epoch[1],
        }
    raise AssertionError("the run was not stopped")


def stops(folder, world):
    """TERM to each process in turn; to the first one first, since the trainer that starts the others has to tell them."""
    return [train_until_term(folder, world, rank) for rank in range(world)]


class Scored(ToyTask):
    """Keeps its scores as they were computed; Lightning's log has them in float32."""

    def on_validation_epoch_end(self):
        self.kept = self.scores.compute()
        self.scores.reset()


def scores_of_counts(folder, world):
    """Scores of the toy task on numbers of samples that do not divide by the number of processes."""
    found = {}
    for count in COUNTS:
        task = Scored(make_net())
        trainer = make_trainer(folder, devices=world, strategy=strategy_of(world))
        trainer.validate(task, ToyData(validation=count, eval_batch=1, dtype=torch.float64), verbose=False)
        found[str(count)] = task.kept
    return found


def metrics_of_a_run(folder, world):
    """Metrics of the run that the test has made, validated through the command line."""
    found = {}
    run = folder / "run"
    for batch in EVAL_BATCHES:
        words = [f"--run={run}", f"--data.eval_batch={batch}", "--trainer.limit_val_batches=1.0"]
        assert dna(["validate", *words, f"--trainer.devices={world}", f"--trainer.strategy={strategy_of(world)}"]) == 0
        if world > 1:
            torch.distributed.barrier()
        # JSON keeps every digit of a float64.
        found[str(batch)] = json.loads((run / "result.json").read_text())["metrics"]
    return found


def robustness_of_a_run(folder, world):
    """Metrics and results per picture of the run that the test has made, on the toy twins of ImageNet-A, -R and -O."""
    words = ["--config=tasks/robustness.yaml", "--config=configs/robustness_toy.yaml", f"--run={folder / 'run'}"]
    # 936 pictures: 6 batches, the last of 36, some of two sets.
    words += ["--data.eval_batch=180", f"--trainer.devices={world}", f"--trainer.strategy={strategy_of(world)}"]
    assert dna(["test", *words]) == 0
    if world > 1:
        torch.distributed.barrier()
    place = folder / "run" / "evaluations" / "robustness"
    return {"metrics": json.loads((place / "result.json").read_text())["metrics"], "images": (place / "images.csv").read_text()}


def strategy_of(world):
    """Without a process group for one: it would stay open in the process that runs the tests."""
    return "ddp" if world > 1 else "auto"


CHECKS = {"stops": stops, "scores": scores_of_counts, "metrics": metrics_of_a_run, "robustness": robustness_of_a_run}


def main(folder: Path, world: int) -> int:
    seen = {name: check(folder, world) for name, check in CHECKS.items()}
    (folder / f"rank{os.environ['LOCAL_RANK']}.json").write_text(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
