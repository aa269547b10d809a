"""`dna doctor`: what this machine has, and what on it would stop a run."""

from __future__ import annotations

import os
import platform
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from dna_suite import __version__
from dna_suite.cli.argv import Parser
from dna_suite.cli.packages import Finding, check_extras, check_packages, first_line
from dna_suite.errors import DnaError
from dna_suite.runs.tables import WIDTH

SUMMARY = "versions, devices, extras and what would stop a run"

SHARED_MEMORY = Path("/dev/shm")
SMALL_SHARED_MEMORY = 64 * 2**20  # what a container gets unless told; one batch of ImageNet pictures is 38 MiB
USUAL_SHARED_MEMORY = 2**30
SMALL_DISK = 2**29  # one checkpoint of ViT-B with its optimiser state is 1.2 GB; below this not even a small run fits
USUAL_DISK = 5 * 2**30


def run(arguments: list[str]) -> int:
    """Print every finding; notes and stops are marked.

    Returns:
        1 where something would stop a run, else 0.
    """
    Parser("dna doctor", SUMMARY).parse_args(arguments)
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        check_packages,
        check_torch,
        check_extras,
        check_port,
        check_shared_memory,
        check_slurm,
        check_folders,
        check_threads,
    )
    print(f"dna_suite {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
    findings = [finding for check in checks for finding in check()]
    for finding in findings:
        mark = {"ok": "  ok", "absent": "  --", "note": "note", "stop": "STOP"}[finding.level]
        print(
            textwrap.fill(
                f"{mark}  {finding.topic:<13}  {finding.text}", WIDTH, subsequent_indent=" " * 21, break_on_hyphens=False
            )
        )
    stops = sum(finding.level == "stop" for finding in findings)
    print(f"\n{stops} of these would stop a run" if stops else "\nnothing here would stop a run")
    return 1 if stops else 0


def check_torch() -> Iterator[Finding]:
    """Whether torch and torchvision load together, and each device can compute."""
    try:
        import torch
        import torchvision

        boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
        torchvision.ops.nms(boxes, torch.ones(1), 0.5)
    except Exception as error:
        yield Finding("stop", "torch", f"torch and torchvision do not work together: {first_line(error)}")
        return
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    yield Finding("ok", "torch", f"{torch.__version__} built with {built}, torchvision {torchvision.__version__}")
    if not torch.cuda.is_available():
        mps = torch.backends.mps.is_available()
        yield Finding("ok", "devices", "mps" if mps else "no GPU that torch can use; runs go to the CPU")
        return
    for index in range(torch.cuda.device_count()):
        try:
            name = torch.cuda.get_device_name(index)
            free, total = torch.cuda.mem_get_info(index)
            torch.ones(1, device=f"cuda:{index}").sum().item()
        except RuntimeError as error:
            yield Finding("stop", "devices", f"cuda:{index} cannot be used: {first_line(error)}")
            continue
        level: Literal["ok", "note"] = "ok" if free > total / 2 else "note"
        yield Finding(level, "devices", f"cuda:{index} {name}, {_size(free)} of {_size(total)} free")


def check_port() -> Iterator[Finding]:
    """A MASTER_PORT that is set: a busy one would let a run of several processes wait for ever."""
    text = os.environ.get("MASTER_PORT")
    if text is None:
        yield Finding("ok", "port", "MASTER_PORT is not set: each run takes a free one")
        return
    try:
        from dna_suite.runs.device import check_port as bind_port

        bind_port()
    except ImportError:
        yield Finding("note", "port", f"MASTER_PORT is {text}; not tried, since torch does not load")
        return
    except DnaError as error:
        yield Finding("stop", "port", str(error))
        return
    yield Finding("note", "port", f"MASTER_PORT is {text} and free now; two runs at once would fight for it: unset it")


def check_shared_memory() -> Iterator[Finding]:
    """The memory through which data loading workers hand over batches."""
    if not SHARED_MEMORY.is_dir():
        return
    usage = shutil.disk_usage(SHARED_MEMORY)
    text = f"{_size(usage.free)} of {_size(usage.total)} free in {SHARED_MEMORY}"
    remedy = "start the container with --shm-size=8g, or set data.workers: 0"
    if usage.total <= SMALL_SHARED_MEMORY:
        yield Finding("stop", "shared memory", f"{text}: workers die with a bus error; {remedy}")
    elif usage.free < USUAL_SHARED_MEMORY:
        yield Finding("note", "shared memory", f"{text}: little for many workers with large batches; {remedy}")
    else:
        yield Finding("ok", "shared memory", text)


def check_slurm() -> Iterator[Finding]:
    """SLURM settings that contradict one another or the devices of this node."""
    if "SLURM_NTASKS" not in os.environ and "SLURM_JOB_ID" not in os.environ:
        yield Finding("ok", "SLURM", "not in a SLURM job")
        return
    if os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        yield Finding("note", "SLURM", "interactive job: Lightning starts its own processes and uses this node only")
        return
    tasks, nodes = _number("SLURM_NTASKS", 1), _number("SLURM_NNODES", 1)
    per_node = _number("SLURM_NTASKS_PER_NODE", 0)
    problems = list(_slurm_problems(tasks, nodes, per_node))
    yield from problems
    if not problems:
        here = per_node or tasks
        yield Finding("ok", "SLURM", f"{nodes} nodes x {here} tasks: trainer.num_nodes {nodes}, trainer.devices {here}")


def _slurm_problems(tasks: int, nodes: int, per_node: int) -> Iterator[Finding]:
    if tasks > 1 and not per_node:
        yield Finding(
            "stop",
            "SLURM",
            f"SLURM_NTASKS is {tasks} without --ntasks-per-node: ask for --ntasks-per-node={tasks // max(nodes, 1)}",
        )
    if per_node and per_node * nodes != tasks:
        yield Finding(
            "stop",
            "SLURM",
            f"{nodes} nodes x {per_node} tasks per node is not SLURM_NTASKS {tasks}: processes would wait for ever",
        )
    devices = _cuda_devices()
    here = per_node or tasks
    if devices and here != devices:
        yield Finding(
            "stop",
            "SLURM",
            f"{here} tasks on this node and {devices} GPUs: set trainer.devices to {here} and ask for as many GPUs",
        )
    if tasks > 1 and "SLURM_STEP_ID" not in os.environ and "SLURM_STEPID" not in os.environ:
        yield Finding(
            "note", "SLURM", "this process was not started by srun; start `dna` itself with srun, or the tasks wait for ever"
        )


def check_folders() -> Iterator[Finding]:
    """Free disk and write permission where runs go, and the data folder that DNA_DATA names."""
    here = Path.cwd()
    usage = shutil.disk_usage(here)
    text = f"{_size(usage.free)} free in {here}"
    if not os.access(here, os.W_OK):
        yield Finding("stop", "disk", f"{here} cannot be written; --runs names another folder")
    elif usage.free < SMALL_DISK:
        yield Finding("stop", "disk", f"{text}: too little for checkpoints")
    else:
        yield Finding("ok" if usage.free >= USUAL_DISK else "note", "disk", text)
    data = os.environ.get("DNA_DATA")
    if data and not Path(data).is_dir():
        yield Finding("stop", "data", f"DNA_DATA is {data}, which is no folder")
    elif data:
        yield Finding("ok", "data", f"DNA_DATA is {data}")


def check_threads() -> Iterator[Finding]:
    """Threads that torch would start against the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _core_quota()
    usable = min(cores, quota) if quota else cores
    try:
        import torch

        threads = torch.get_num_threads()
    except Exception:
        threads = _number("OMP_NUM_THREADS", cores)
    text = f"{threads} in torch, {usable:g} cores to use"
    if threads > usable + 0.5:
        yield Finding("note", "threads", f"{text}: they would wait for one another; OMP_NUM_THREADS={max(int(usable), 1)}")
    else:
        yield Finding("ok", "threads", text)


def _number(variable: str, default: int) -> int:
    """The first number of an environment variable; SLURM writes "4(x2)" for two nodes of four."""
    match = re.match(r"\d+", os.environ.get(variable, ""))
    return int(match[0]) if match else default


def _cuda_devices() -> int:
    try:
        import torch
    except Exception:
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _core_quota() -> float | None:
    """Cores that the control group allows, or None where it sets no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        return int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
