import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from toy_loop import CLASSES, Rows
from toy_windows import bare_gradients, make_net
from two_processes import ACCUMULATE, BATCH, LENGTH, STOP, VALIDATION

from dna_suite.metrics.classification import ClassificationScores
from dna_suite.runs.checkpoint_files import newest_checkpoint, step_name

# Rounding of a sum of a few dozen float64 numbers.
TOLERANCE = 5e-15


def test_two_processes_train_and_count_as_one_and_stop_together(tmp_path):
    """Gradients, evaluation and a TERM to the second process in one launch, because every process pays the imports."""
    script = Path(__file__).with_name("two_processes.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, script, tmp_path]
    ended = subprocess.run(command, check=False, env=environment, timeout=300, capture_output=True, text=True)
    assert ended.returncode == 143, ended.stderr
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert second["code"] == 0, "Lightning kills a parent whose child ends with anything else"
    assert newest_checkpoint(tmp_path) == tmp_path / step_name(STOP)

    expected = bare_gradients(LENGTH, 2 * BATCH, ACCUMULATE, epochs=2)[:STOP]
    assert len(first["gradients"]) == STOP
    for seen, wanted in zip(first["gradients"], expected, strict=True):
        assert float((torch.tensor(seen, dtype=torch.float64) - wanted).norm() / wanted.norm()) < TOLERANCE

    weights = torch.load(tmp_path / "best.ckpt", weights_only=True)["state_dict"]
    net, rows, scores = make_net(), Rows(VALIDATION), ClassificationScores(CLASSES)
    net.load_state_dict({name.removeprefix("net."): value for name, value in weights.items()})
    with torch.no_grad():
        for batch in torch.arange(VALIDATION).split(2):
            scores.update(net(rows.rows[batch].double()), rows.labels[batch], torch.ones(len(batch), dtype=torch.bool))
    alone = {f"val/{name}": value for name, value in scores.compute().items()}
    # Lightning's log keeps float32.
    assert first["validations"] == second["validations"] == [{name: torch.tensor(v).item() for name, v in alone.items()}]
    # Two windows of two global batches of 12 in the second epoch, both processes counted.
    assert first["samples"] == second["samples"] == 48
