"""The record of a run, result.json: what was run, what came out, on how many samples, with which code and machine."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import dna_suite
from dna_suite.errors import DnaError
from dna_suite.runs.folder import write_json

VERSION = 1

# Key -> accepted types; a record without one of these is refused.
REQUIRED: dict[str, tuple[type, ...]] = {
    "recipe": (str,),
    "task": (str,),
    "attention": (dict,),
    "label": (str,),
    "backbone": (dict,),
    "seed": (int,),
    "toy": (bool,),
    "data": (dict,),
    "parameters": (int,),
    "multiply_adds": (int, type(None)),
    "metrics": (dict,),
    "best": (dict, type(None)),
    "training": (dict, type(None)),
    "transform": (dict, type(None)),
    "commit": (str, type(None)),
    "versions": (dict,),
    "hardware": (dict,),
}

# A second write to a record must agree in these: it adds metrics to the same model on the same data.
IDENTITY = ("recipe", "task", "attention", "backbone", "seed", "toy")

PACKAGES = ("torch", "torchvision", "lightning", "timm", "torchmetrics", "jsonargparse", "numpy", "Pillow", "safetensors")

# Settings outside the recipe that change how a run behaves; env.json holds those that are set.
SETTINGS = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "DNA_DATA", "SLURM_JOB_ID", "SLURM_NTASKS")


def write_result(
    folder: Path,
    description: Mapping[str, Any],
    metrics: Mapping[str, tuple[float, int]],
    *,
    machine: Mapping[str, Any],
    best: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write or extend FOLDER/result.json, whole or not at all, and return its content.

    A record that is there is kept and extended: metrics of the same name are replaced, others stay; `best` and `training`
    stay unless given. A metric measured with another transform or subset than the record's carries its own.

    Args:
        folder: the run folder, or RUN/evaluations/RECIPE for a test by another recipe.
        description: recipe, task, attention, label, backbone, seed, toy, data, parameters, multiply_adds, transform;
            more keys of plain values may stand beside them (sites, trained_by).
        metrics: name -> (value, number of samples); fractions as fractions, not percent. A value that is no finite number
            is stored as null.
        machine: what `hardware` returned for the devices in use.
        best: metric, value, epoch and step of the best checkpoint.
        training: epochs, steps, seconds, finished.

    Raises:
        DnaError: a record that is there belongs to another model, task or data set, or cannot be read; or the description
            lacks a key.
    """
    path = folder / "result.json"
    description = json.loads(json.dumps(description))  # tuples become lists, as in the record that is compared
    old = read_result(path) if path.is_file() else None
    if old is not None:
        _same_run(path, old, description)
    result: dict[str, Any] = {"version": VERSION, **(old or description)}
    result["data"] = dict(result["data"])
    result["data"]["counts"] = {**result["data"].get("counts", {}), **description["data"].get("counts", {})}
    own = _own_conditions(result, description)
    entries = {name: {"value": _finite(value), "samples": samples, **own} for name, (value, samples) in metrics.items()}
    result["metrics"] = {**(old or {}).get("metrics", {}), **entries}
    result["best"] = dict(best) if best is not None else (old or {}).get("best")
    if result["best"] is not None:
        result["best"]["value"] = _finite(result["best"]["value"])
    result["training"] = dict(training) if training is not None else (old or {}).get("training")
    result["commit"] = commit()
    result["versions"] = versions()
    result["hardware"] = dict(machine)
    _check(path, result)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, result)
    return result


def read_result(path: Path) -> dict[str, Any]:
    """The content of a result.json.

    Args:
        path: the file, or the folder that holds it.

    Raises:
        DnaError: the file is missing, is not JSON, has another version or lacks a key; the message holds the path.
    """
    path = path / "result.json" if path.is_dir() else path
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DnaError(f"{path}: no such file; a run writes it when training or testing ends") from None
    except (OSError, ValueError) as error:
        raise DnaError(f"{path}: cannot be read ({error})") from None
    _check(path, result)
    return result


@cache
def commit() -> str | None:
    """Commit of the working tree that this package runs from, with "-dirty" for changed files; None for an installed copy.

    Asked once in a process: a run of days is the code that it started with, whatever happens to the tree meanwhile.
    """
    here = Path(dna_suite.__file__).parent
    # An installed copy may lie inside somebody else's repository: only a tree that tracks this file is ours.
    if _git(here, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return _git(here, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def versions() -> dict[str, str]:
    """Version of Python, of this package and of each package that decides about numbers; those not installed are left out."""
    found = {"python": platform.python_version(), "dna_suite": dna_suite.__version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware(accelerators: Iterable[str] = ()) -> dict[str, Any]:
    """What the run ran on: processor, cores open to this process, memory in GiB, accelerators by name.

    Args:
        accelerators: names of the devices in use, as `accelerator_names` lists them.
    """
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "accelerators": list(accelerators),
    }


def accelerator_names() -> list[str]:
    """Names of the CUDA devices that torch sees, or "mps"; imports torch."""
    import torch

    if torch.cuda.is_available():
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ["mps"] if torch.backends.mps.is_available() else []


def environment(accelerators: Iterable[str] = ()) -> dict[str, Any]:
    """Content of env.json: versions, hardware, platform, commit, and the settings outside the recipe that are set."""
    return {
        "versions": versions(),
        "hardware": hardware(accelerators),
        "platform": platform.platform(),
        "commit": commit(),
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
    }


def _same_run(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise where a record describes something else than what is to be added."""
    pairs = [(key, old.get(key), new.get(key)) for key in IDENTITY]
    pairs.append(("data.name", old["data"].get("name"), new["data"].get("name")))
    different = [f"{key} {ours!r} there, {theirs!r} here" for key, ours, theirs in pairs if ours != theirs]
    if different:
        raise DnaError(f"{path} is the record of another run: {'; '.join(different)}")


def _own_conditions(result: Mapping[str, Any], description: Mapping[str, Any]) -> dict[str, Any]:
    """What a metric must carry itself because it differs from what the record says."""
    own: dict[str, Any] = {}
    if description.get("transform") != result.get("transform"):
        own["transform"] = description.get("transform")
    if description["data"].get("subset") != result["data"].get("subset"):
        own["subset"] = description["data"].get("subset")
    return own


def _check(path: Path, result: Any) -> None:
    """Raise unless the content has this version's keys and types."""
    if not isinstance(result, dict) or "version" not in result:
        raise DnaError(f"{path}: not a record of dna_suite (no version)")
    if result["version"] != VERSION:
        raise DnaError(f"{path}: version {result['version']}, and dna_suite {dna_suite.__version__} reads version {VERSION}")
    missing = [key for key in REQUIRED if key not in result]
    if missing:
        raise DnaError(f"{path}: lacks {', '.join(missing)}")
    for key, types in REQUIRED.items():
        if not isinstance(result[key], types) or (int in types and isinstance(result[key], bool)):
            raise DnaError(f"{path}: {key} is {result[key]!r}, which is not of type {types[0].__name__}")
    for name, entry in result["metrics"].items():
        if not isinstance(entry, dict) or not {"value", "samples"} <= entry.keys():
            raise DnaError(f"{path}: metrics.{name} lacks value or samples")


def _finite(value: float | None) -> float | None:
    """The value as a float, or None where it is not a finite number (JSON has no NaN)."""
    return float(value) if value is not None and math.isfinite(value) else None


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command, or None where git is missing, fails or hangs."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    """Name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    """Memory of the machine in GiB, or None where the system does not say."""
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None
