"""Two and three processes train, count and stop as one does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import (
    ACCUMULATE,
    COUNTS,
    GLOBAL_BATCH,
    LENGTH,
    STOP,
    VALIDATION,
    metrics_of_a_run,
    robustness_of_a_run,
    scores_of_counts,
)
from toy_loop import CLASSES, Rows
from toy_windows import bare_gradients, make_net

from dna_suite.cli.main import main
from dna_suite.metrics.classification import ClassificationScores
from dna_suite.runs.checkpoint_files import newest_checkpoint, step_name

# Rounding of a sum of a few dozen float64 numbers.
TOLERANCE = 5e-15


def make_run(folder):
    words = ["--config=tasks/digits.yaml", "--config=configs/smoke.yaml", "--data.toy=false", "--trainer.limit_train_batches=1"]
    assert main(["fit", *words, f"--runs={folder / 'runs'}"]) == 0
    (folder / "runs" / "digits" / "softmax" / "seed0").rename(folder / "run")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Scores and metrics in one process."""
    folder = tmp_path_factory.mktemp("alone")
    make_run(folder)
    return {
        "scores": scores_of_counts(folder, 1),
        "metrics": metrics_of_a_run(folder, 1),
        "robustness": robustness_of_a_run(folder, 1),
    }


@pytest.fixture(scope="module", params=[2, 3])
def launch(request, alone, tmp_path_factory):
    """The number of processes, their folder, and what each of them saw, in one launch."""
    folder, script = tmp_path_factory.mktemp(f"processes{request.param}"), Path(__file__).with_name("processes.py")
    make_run(folder)
    command = [sys.executable, script, folder, str(request.param)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, check=False, env=environment, timeout=300, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return request.param, folder, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(request.param)]


def test_term_to_any_process_stops_all_at_the_same_border(launch):
    world, folder, ranks = launch
    for target in range(world):
        # Lightning kills a parent whose child ends with anything but 0.
        assert [seen["stops"][target]["code"] for seen in ranks] == [143, *[0] * (world - 1)]
        assert newest_checkpoint(folder / f"term{target}") == folder / f"term{target}" / step_name(STOP)


def test_gradients_are_those_of_one_process(launch):
    _, _, ranks = launch
    expected = bare_gradients(LENGTH, GLOBAL_BATCH, ACCUMULATE, epochs=2)[:STOP]
    for stop in ranks[0]["stops"]:
        assert len(stop["gradients"]) == STOP
        for seen, wanted in zip(stop["gradients"], expected, strict=True):
            assert float((torch.tensor(seen, dtype=torch.float64) - wanted).norm() / wanted.norm()) < TOLERANCE
        # Two windows of two global batches of 12 in the second epoch, all processes counted.
        assert stop["samples"] == 48


def test_a_validation_in_training_counts_every_sample_once(launch):
    _, folder, ranks = launch
    weights = torch.load(folder / "term0" / "best.ckpt", weights_only=True)["state_dict"]
    net, rows, scores = make_net(), Rows(VALIDATION), ClassificationScores(CLASSES)
    net.load_state_dict({name.removeprefix("net."): value for name, value in weights.items()})
    with torch.no_grad():
        for batch in torch.arange(VALIDATION).split(2):
            scores.update(net(rows.rows[batch].double()), rows.labels[batch], torch.ones(len(batch), dtype=torch.bool))
    # Lightning's log keeps float32.
    single = {f"val/{name}": torch.tensor(value).item() for name, value in scores.compute().items()}
    assert all(seen["stops"][0]["validations"] == [single] for seen in ranks)


def test_metrics_are_equal_to_the_last_digit(alone, launch):
    _, _, ranks = launch
    assert [found["samples"] for found in alone["scores"].values()] == list(COUNTS)
    assert {found["val/top1"]["samples"] for found in alone["metrics"].values()} == {180}
    assert len(alone["robustness"]["images"].splitlines()) == 1 + 936
    for name, expected in alone.items():
        assert all(seen[name] == expected for seen in ranks)
