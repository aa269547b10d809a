import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from dna_suite.backbones.files import fault_of
from dna_suite.cli.main import main
from dna_suite.runs.checkpoint_files import newest_checkpoint, remove_stale_parts, step_files, step_name
from dna_suite.runs.checkpoint_io import AtomicCheckpointIO

KILLS = 30


def save_for_ever(folder, first):
    """Write 20 MB files, keeping two, until killed."""
    writer, step = AtomicCheckpointIO(), first
    while True:
        writer.save_checkpoint({"step": step, "w": torch.full((5_000_000,), float(step))}, folder / step_name(step))
        for old in list(step_files(folder))[:-2]:
            (folder / step_name(old)).unlink()
        step += 1


@pytest.mark.slow
def test_a_process_killed_while_saving_never_leaves_a_broken_file(tmp_path):
    draw, parts = random.Random(0), 0
    newest = 0
    for _ in range(KILLS):
        child = os.fork()
        if child == 0:
            save_for_ever(tmp_path, newest + 1)
        time.sleep(draw.uniform(0.05, 0.6))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        files = step_files(tmp_path)
        assert all(fault_of(path) is None for path in files.values())
        assert len(files) <= 3
        # What was whole before a kill is whole after it.
        assert max(files, default=0) >= newest
        newest = max(files, default=0)
        parts += len(remove_stale_parts(tmp_path))
    assert newest >= 10
    assert float(torch.load(newest_checkpoint(tmp_path), weights_only=True)["w"][0]) == newest
    assert {path.name for path in tmp_path.iterdir()} == {step_name(step) for step in step_files(tmp_path)}
    assert parts > 0, "no kill hit a save: the storm proved nothing"


def train_for_ever():
    """A run with an average of its weights that saves after every step and goes on from what the last process left."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    words = ["--config=tasks/digits.yaml", "--config=configs/smoke.yaml", "--data.toy=false", "--runs=runs"]
    try:
        main(["fit", *words, "--model.ema=0.9", "--trainer.max_epochs=100000", "--save_every=1", "--resume"])
    finally:
        os._exit(1)


@pytest.mark.slow
def test_a_run_killed_thirty_times_goes_on_each_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, draw, newest = Path("runs/digits/softmax/seed0/checkpoints"), random.Random(1), 0
    for _ in range(KILLS):
        child = os.fork()
        if child == 0:
            train_for_ever()
        deadline = time.monotonic() + 120
        while max(step_files(folder), default=0) <= newest:
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the run ended by itself"
            assert time.monotonic() < deadline, "the run does not go on"
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert all(fault_of(path) is None for path in folder.glob("*.ckpt"))
        newest = max(step_files(folder))
    content = torch.load(newest_checkpoint(folder), weights_only=True)
    assert content["global_step"] == newest >= KILLS
    assert int(content["averaging_state"]["n_averaged"]) == newest
