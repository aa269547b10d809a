"""What a run may ask of the machine, checked before a trainer is made: accelerator, precision, port."""

from __future__ import annotations

import os
import socket

import torch

from dna_suite.errors import DnaError

_HALF = ("16", "16-mixed", "16-true", "bf16", "bf16-mixed", "bf16-true")
_SET_BY_LAUNCHERS = ("LOCAL_RANK", "RANK", "GROUP_RANK", "TORCHELASTIC_RUN_ID", "SLURM_PROCID")


def resolve_device(
    accelerator: str = "auto", precision: str | int = "32-true", devices: str | int | list[int] = "auto"
) -> tuple[str, str, list[str]]:
    """The accelerator and precision that this machine can run, and a line for each thing that was changed.

    Args:
        accelerator: auto, cpu, gpu, cuda or mps, as for Lightning's trainer.
        precision: as for Lightning's trainer; half precision on a CPU becomes 32, since it is slower there.
        devices: auto, a number or a list of indices.

    Raises:
        DnaError: a GPU is asked for that is not there.
    """
    cuda, mps = torch.cuda.device_count() if torch.cuda.is_available() else 0, torch.backends.mps.is_available()
    if accelerator in ("gpu", "cuda") and not cuda and not (accelerator == "gpu" and mps):
        build = "" if torch.version.cuda else f" (torch {torch.__version__} is a build without CUDA)"
        raise DnaError(f"trainer.accelerator {accelerator}: this machine has no GPU for torch{build}; auto or cpu runs here")
    if accelerator == "mps" and not mps:
        raise DnaError("trainer.accelerator mps: this machine has none; auto or cpu runs here")
    wanted = len(devices) if isinstance(devices, list) else int(devices) if str(devices).isdigit() else 0
    if accelerator in ("gpu", "cuda", "auto") and cuda and wanted > cuda:
        raise DnaError(f"trainer.devices {devices}: this machine has {cuda} GPU(s)")
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not cuda and not mps)
    if on_cpu and str(precision) in _HALF:
        return accelerator, "32-true", [f"trainer.precision {precision} becomes 32 on a CPU"]
    return accelerator, str(precision), []


def check_port() -> None:
    """Refuse a MASTER_PORT that another program holds, which otherwise is a rendezvous that waits without a word.

    Processes that a launcher started are not asked: there the port is rightly in use.

    Raises:
        DnaError: the port is not a number or cannot be bound.
    """
    text = os.environ.get("MASTER_PORT")
    if text is None or any(name in os.environ for name in _SET_BY_LAUNCHERS):
        return
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise DnaError(f"MASTER_PORT is {text!r}: a port is a number from 1 to 65535; unset it to get a free one")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(text)))
        except OSError as error:
            reason = error.strerror
            raise DnaError(f"MASTER_PORT {text} cannot be used ({reason}): unset it to get a free one") from None
