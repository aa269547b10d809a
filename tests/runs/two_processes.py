"""Two processes train the toy task until a TERM reaches the second one alone; run as a script by test_two_processes.py."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from lightning.pytorch import Callback
from toy_loop import ToyData, ToyTask, make_trainer
from toy_windows import Gradients, make_net

from dna_suite.runs.checkpoints import RunCheckpoints
from dna_suite.runs.signals import Signals, Stopped
from dna_suite.runs.step_seed import StepSeed
from dna_suite.runs.train_log import TrainLog

LENGTH, BATCH, ACCUMULATE, VALIDATION, EVAL_BATCH, STOP = 50, 6, 2, 5, 2, 5


class TermToSecond(Callback):
    """Sends TERM to the second process in the middle of a window."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_rank == 1 and trainer.global_step == STOP - 1 and batch_idx % ACCUMULATE == 0:
            os.kill(os.getpid(), signal.SIGTERM)


class Validations(Callback):
    def __init__(self):
        self.seen = []

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.seen.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def main(folder: Path) -> int:
    checkpoints, gradients, validations, log = RunCheckpoints(folder), Gradients(), Validations(), TrainLog()
    callbacks = [StepSeed(0), log, TermToSecond(), gradients, validations, Signals(checkpoints), checkpoints]
    options = {"devices": 2, "strategy": "ddp", "accumulate_grad_batches": ACCUMULATE, "gradient_clip_val": None}
    trainer = make_trainer(folder, *callbacks, **options)
    data = ToyData(LENGTH, VALIDATION, BATCH, EVAL_BATCH, noise=0.0, dtype=torch.float64)
    code = 0
    try:
        trainer.fit(ToyTask(make_net(), mixing=False), data)
    except Stopped as stop:
        code = stop.exit_code
    seen = {
        "code": code,
        "gradients": [gradient.tolist() for gradient in gradients.seen],
        "validations": validations.seen,
        "samples": log.epoch[1],
    }
    (folder / f"rank{trainer.global_rank}.json").write_text(json.dumps(seen))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
