import socket

import pytest
import torch

from dna_suite.errors import DnaError
from dna_suite.runs.device import check_port, resolve_device


@pytest.fixture
def machine(monkeypatch):
    """Sets how many GPUs torch sees."""

    def set_gpus(cuda, mps=False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return set_gpus


@pytest.mark.parametrize("accelerator", ["gpu", "cuda", "mps"])
def test_a_gpu_that_is_not_there_is_refused(machine, accelerator):
    machine(0)
    with pytest.raises(DnaError, match=f"trainer.accelerator {accelerator}: this machine has no"):
        resolve_device(accelerator)


def test_more_gpus_than_there_are_is_refused(machine):
    machine(2)
    with pytest.raises(DnaError, match=r"trainer.devices 4: this machine has 2 GPU\(s\)"):
        resolve_device("gpu", "32-true", 4)
    assert resolve_device("gpu", "32-true", 2) == ("gpu", "32-true", [])
    assert resolve_device("cpu", "32-true", 4) == ("cpu", "32-true", [])


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16", "bf16-true"])
def test_half_precision_on_a_cpu_becomes_32_with_one_line(machine, precision):
    machine(0)
    assert resolve_device("auto", precision) == ("auto", "32-true", [f"trainer.precision {precision} becomes 32 on a CPU"])
    machine(1)
    assert resolve_device("auto", precision) == ("auto", precision, [])
    assert resolve_device("cpu", precision)[1] == "32-true"


@pytest.fixture
def port(monkeypatch):
    for name in ("LOCAL_RANK", "RANK", "GROUP_RANK", "TORCHELASTIC_RUN_ID", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as held:
        held.bind(("", 0))
        held.listen()
        number = held.getsockname()[1]
        monkeypatch.setenv("MASTER_PORT", str(number))
        yield number


def test_a_busy_master_port_is_named(port):
    with pytest.raises(DnaError, match=rf"MASTER_PORT {port} cannot be used \(Address already in use\): unset it"):
        check_port()


def test_a_free_port_no_port_and_a_launcher_s_port_are_fine(port, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    check_port()
    monkeypatch.delenv("LOCAL_RANK")
    monkeypatch.setenv("MASTER_PORT", "port")
    with pytest.raises(DnaError, match="MASTER_PORT is 'port'"):
        check_port()
    with socket.socket() as other:
        other.bind(("", 0))
        free = other.getsockname()[1]
    monkeypatch.setenv("MASTER_PORT", str(free))
    check_port()
    monkeypatch.delenv("MASTER_PORT")
    check_port()
