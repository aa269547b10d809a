"""The SLURM script starts one task for each device, and its run is resumed by the job that comes back."""

import os
import subprocess
from pathlib import Path

import pytest

from dna_suite.cli.train import is_child

SCRIPT = Path(__file__).parents[2] / "scripts" / "slurm.sh"


def start(folder, **variables):
    srun = folder / "srun"
    srun.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    srun.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    environment |= {"PATH": f"{folder}:{os.environ['PATH']}", **variables}
    words = ["--config", "tasks/digits.yaml", "--model.attention.options={a: 1}"]
    return subprocess.run(["bash", SCRIPT, *words], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("variables", "nodes", "tasks", "cpus"),
    [
        ({"SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8", "SLURM_CPUS_ON_NODE": "64"}, 2, 8, 8),
        ({"SLURM_NNODES": "1", "SLURM_CPUS_ON_NODE": "4"}, 1, 1, 4),
        ({"SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "4", "SLURM_CPUS_ON_NODE": "2"}, 1, 4, 1),
    ],
)
def test_tasks_follow_from_devices(variables, nodes, tasks, cpus, tmp_path):
    done = start(tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[:4] == [f"--nodes={nodes}", f"--ntasks-per-node={tasks}", f"--ntasks={nodes * tasks}", f"--cpus-per-task={cpus}"]
    assert words[4:9] == ["dna", "fit", "--config", "tasks/digits.yaml", "--model.attention.options={a: 1}"]
    size = [f"--trainer.num_nodes={nodes}", f"--trainer.devices={tasks}"]
    assert words[9:] == ["--config", "configs/slurm.yaml", *size, "--resume"]


def test_outside_a_job_the_script_says_so(tmp_path):
    done = start(tmp_path)
    assert done.returncode != 0
    assert "start this script with sbatch" in done.stderr


@pytest.mark.parametrize("name", ["LOCAL_RANK", "NODE_RANK", "RANK", "SLURM_PROCID"])
def test_one_process_of_a_run_speaks_and_writes(name, monkeypatch):
    assert not is_child()
    monkeypatch.setenv(name, "0")
    assert not is_child()
    monkeypatch.setenv(name, "3")
    assert is_child()
