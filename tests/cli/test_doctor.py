"""`dna doctor`: each condition that would stop a run is found, and a sound machine passes."""

from __future__ import annotations

import os
import re
import shutil
import socket
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from dna_suite.cli import doctor, packages
from dna_suite.cli.main import main
from dna_suite.cli.packages import Finding, check_extras, check_packages


@pytest.fixture(autouse=True)
def _plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine that runs the tests decides about them."""
    for name in list(os.environ):
        if name.startswith("SLURM_") or name in ("MASTER_PORT", "DNA_DATA", "LOCAL_RANK", "RANK"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(doctor, "_cuda_devices", lambda: 0)


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level for finding in findings]


def declare(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(packages.metadata, "requires", lambda name: list(lines))


def test_the_whole_report_and_its_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    declare(monkeypatch, "torch>=2", "PyYAML>=6", 'no-such-package>=1; extra == "video"', 'dna_suite[video]; extra == "all"')
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "nothing here would stop a run"
    assert max(len(line) for line in lines) <= 100
    assert any(re.match(r"  ok  packages +torch 2\..*, PyYAML 6", line) for line in lines)
    assert any(
        re.match(r"  --  \[video\] +no-such-package is not installed; pip install 'dna_suite\[video\]'", line) for line in lines
    )
    declare(monkeypatch, "torch<2")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"STOP  packages +torch 2\.\S+ is outside <2\n", out)
    assert out.endswith("1 of these would stop a run\n")


def test_a_core_package_must_be_there_and_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    declare(monkeypatch, "no-such-package>=1")
    assert list(check_packages())[1:] == [Finding("stop", "packages", "no-such-package is not installed")]
    (tmp_path / "broken_package.py").write_text("raise RuntimeError('built for another torch')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(packages.metadata, "version", lambda name: "1.5")
    declare(monkeypatch, "broken-package>=1")
    expected = "broken-package 1.5 does not import: RuntimeError: built for another torch"
    assert list(check_packages())[1:] == [Finding("stop", "packages", expected)]
    declare(monkeypatch, "broken-package>=1; extra == 'video'")
    assert next(check_extras()) == Finding("note", "[video]", expected)


def test_declared_extras_are_those_of_the_project() -> None:
    # The metadata that pip reads, not a list in a test: every extra but the sum of all is told.
    extras = {name.replace("_", "-") for name in metadata.metadata("dna_suite").get_all("Provides-Extra")}
    told = {requirement.extra.replace("_", "-") for requirement in packages._requirements() if requirement.extra}
    assert extras - {"all"} <= told | {"all"}


def test_a_busy_port_stops_and_a_free_one_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(list(doctor.check_port())) == ["ok"]
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        monkeypatch.setenv("MASTER_PORT", port)
        (busy,) = doctor.check_port()
        assert busy.level == "stop"
        assert port in busy.text
    (free,) = doctor.check_port()
    assert free.level == "note"
    monkeypatch.setenv("MASTER_PORT", "http")
    assert levels(list(doctor.check_port())) == ["stop"]


@pytest.mark.parametrize(
    ("total", "free", "level"),
    [(64 * 2**20, 64 * 2**20, "stop"), (2**33, 2**29, "note"), (2**33, 2**32, "ok")],
)
def test_shared_memory(total: int, free: int, level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=total, used=total - free, free=free))
    (finding,) = doctor.check_shared_memory()
    assert finding.level == level
    if level != "ok":
        assert "--shm-size" in finding.text
        assert "data.workers: 0" in finding.text


@pytest.mark.parametrize(
    ("settings", "gpus", "expected", "named"),
    [
        ("", 4, ["ok"], "not in a SLURM job"),
        ("NTASKS=1", 1, ["ok"], "trainer.devices 1"),
        ("NTASKS=8 NNODES=2 NTASKS_PER_NODE=4 STEP_ID=0", 4, ["ok"], "trainer.num_nodes 2"),
        ("NTASKS=1", 4, ["stop"], "1 tasks on this node and 4 GPUs"),
        ("NTASKS=4 STEP_ID=0", 4, ["stop"], "--ntasks-per-node=4"),
        ("NTASKS=4 NNODES=2 NTASKS_PER_NODE=4(x2) STEP_ID=0", 0, ["stop"], "SLURM_NTASKS 4"),
        ("NTASKS=2 NTASKS_PER_NODE=2", 2, ["note"], "srun"),
        ("NTASKS=4 JOB_NAME=interactive", 1, ["note"], "interactive"),
    ],
)
def test_slurm_settings(settings: str, gpus: int, expected: list[str], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in settings.split():
        name, _, value = setting.partition("=")
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setattr(doctor, "_cuda_devices", lambda: gpus)
    findings = list(doctor.check_slurm())
    assert levels(findings) == expected
    assert named in findings[0].text


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DNA_DATA", str(tmp_path / "missing"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=2**40, used=0, free=2**20))
    assert levels(list(doctor.check_folders())) == ["stop", "stop"]
    monkeypatch.setenv("DNA_DATA", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=2**40, used=0, free=2**31))
    assert levels(list(doctor.check_folders())) == ["note", "ok"]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert levels(list(doctor.check_folders()))[0] == "stop"


def test_more_threads_than_cores_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(doctor, "_core_quota", lambda: 2.0)
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    (finding,) = doctor.check_threads()
    assert finding.level == "note"
    assert "OMP_NUM_THREADS=2" in finding.text
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert levels(list(doctor.check_threads())) == ["ok"]
