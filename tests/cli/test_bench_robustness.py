"""`dna bench robustness`: what it times is the task's own step and scores."""

import json

import numpy as np
import pytest
import torch

from dna_suite.cli.bench import run
from dna_suite.cli.bench_robustness import (
    BATCH,
    ListedSets,
    score_all,
    score_published,
    score_with_torchmetrics,
    step_and_forward,
)


def test_a_step_keeps_a_batch_and_the_forward_pass_alone_keeps_nothing():
    data = ListedSets()
    assert np.bincount(data.parts.of).tolist() == [7_500, 30_000, 2_000, 10_000]
    step, forward = step_and_forward(data)
    task = forward.__closure__[1].cell_contents
    assert forward().shape == (BATCH, 1000)
    step()
    step()
    kept = task.kept.compute()
    assert kept.sample.tolist() == list(range(2 * BATCH))
    # Among 200 classes, of which one is right more often than among 1,000.
    assert (kept.confidence > 1 / 200).all()
    assert (kept.correct >= kept.correct_all).all()


def test_what_both_sides_have_is_equal():
    ours, theirs = score_all(), score_with_torchmetrics()
    assert len(score_published()) == 14
    # torchmetrics computes both in float32.
    assert ours[-3:-1] == pytest.approx(theirs[3:], abs=1e-6)


def test_it_writes_its_numbers(tmp_path, capsys):
    threads = torch.get_num_threads()
    try:
        assert run(["robustness", "--rounds", "1", "--threads", "1", "--out", str(tmp_path / "bench.json")]) == 0
    finally:
        torch.set_num_threads(threads)
    found = json.loads((tmp_path / "bench.json").read_text())["benchmarks"]["robustness"]
    assert found["batch"]["added_cpu_ms"] > 0
    assert found["metrics"]["pictures"] == 50_000
    assert "ms of CPU time beyond the forward pass" in capsys.readouterr().out
