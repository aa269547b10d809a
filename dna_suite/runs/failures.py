"""Failures of a run in one line: what happened, where, and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer

from dna_suite.errors import DnaError

_SHARED_MEMORY = Path("/dev/shm")


def diverged(loss: float, *, epoch: int, step: int, lr: float, checkpoint: Path | None) -> DnaError:
    """The error for a training loss that is NaN or infinite.

    Args:
        loss: the loss.
        epoch: epoch, from 0.
        step: optimiser step that the loss belongs to, from 1.
        lr: learning rate of that step.
        checkpoint: the newest file that was saved before it.
    """
    return DnaError(
        f"training loss is {loss} at epoch {epoch}, step {step}, learning rate {lr:.3e}; "
        f"last good checkpoint: {checkpoint or 'none'}; a lower model.optim.lr or a longer warm-up usually helps"
    )


def underflowed(scale: float, skipped: int, *, epoch: int, step: int, lr: float, checkpoint: Path | None) -> DnaError:
    """The error for float16 training whose gradients stay infinite however small the loss is scaled.

    Args:
        scale: the loss scale.
        skipped: optimiser steps that the scaler has skipped.
        epoch: epoch, from 0.
        step: optimiser steps done, skipped ones included.
        lr: learning rate of the newest step.
        checkpoint: the newest file that was saved before it.
    """
    return DnaError(
        f"gradients are not finite: the loss scale of 16-mixed fell to {scale:.1e} after {skipped} skipped steps, "
        f"at epoch {epoch}, step {step}, learning rate {lr:.3e}; last good checkpoint: {checkpoint or 'none'}; "
        "trainer.precision bf16-mixed needs no scale"
    )


@contextmanager
def plain_failures(trainer: Trainer) -> Iterator[None]:
    """Turn failures with a known remedy that leave a trainer call into one line.

    Raises:
        DnaError: the device ran out of memory, or data loading workers ran out of shared memory.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise out_of_memory(trainer) from error
    except RuntimeError as error:
        if re.search(r"shared memory|shm|bus error", str(error), re.IGNORECASE):
            raise out_of_shared_memory(trainer) from error
        raise


def out_of_memory(trainer: Trainer) -> DnaError:
    """The error for a full device: device, local batch, and the same global batch in smaller pieces."""
    data: Any = getattr(trainer, "datamodule", None)
    batch, accumulate = getattr(data, "batch", None), trainer.accumulate_grad_batches
    device = trainer.strategy.root_device
    name = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    if trainer.state.fn != "fit" or batch is None or batch < 2:
        return DnaError(f"{device}{name} is out of memory at a local batch of {batch}: a smaller data.batch needs less")
    return DnaError(
        f"{device}{name} is out of memory at a local batch of {batch}; the same global batch of "
        f"{batch * accumulate * trainer.world_size}: --data.batch={batch // 2} "
        f"--trainer.accumulate_grad_batches={accumulate * 2}"
    )


def out_of_shared_memory(trainer: Trainer) -> DnaError:
    """The error for data loading workers that could not hand over a batch: size of the shared memory, and the remedy."""
    data: Any = getattr(trainer, "datamodule", None)
    size = "unknown size"
    if _SHARED_MEMORY.is_dir():
        status = os.statvfs(_SHARED_MEMORY)
        size = f"{status.f_blocks * status.f_frsize / 1e6:.0f} MB"
    return DnaError(
        f"data loading workers ran out of shared memory ({_SHARED_MEMORY}, {size}) with data.workers "
        f"{getattr(data, 'workers', '?')}; fewer workers need less, --data.workers=0 needs none"
    )
