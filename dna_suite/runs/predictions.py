"""Predictions written as they come: one line of JSON for each picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from dna_suite.errors import DnaError
from dna_suite.tasks.base import Task


class PredictionWriter(Callback):
    """Writes path, class names and probabilities of each picture to a JSON lines file.

    A line reads {"path": ..., "classes": [...], "probabilities": [...]}, likeliest class first. With several processes each
    writes a file of its own.

    Args:
        folder: where predictions.jsonl goes.
        topk: classes written for each picture; all of them where there are fewer.

    Raises:
        DnaError: the file exists already.
    """

    def __init__(self, folder: Path, topk: int) -> None:
        self.folder = folder
        self.topk = topk
        self.classes: list[str] = []
        self.path = folder / "predictions.jsonl"
        self.written = 0
        self._file: TextIO | None = None

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the file; an existing one is not replaced."""
        assert isinstance(pl_module, Task)
        self.classes = pl_module.classes
        if trainer.world_size > 1:
            self.path = self.folder / f"predictions.{trainer.global_rank}.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._file = self.path.open("x", encoding="utf-8")
        except FileExistsError:
            raise DnaError(f"{self.path} exists: --out names another folder") from None

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Write the lines of one batch."""
        assert isinstance(outputs, Tensor)
        assert self._file is not None
        values, labels = outputs.topk(min(self.topk, len(self.classes)), dim=-1)
        rows = zip(batch["path"], batch["counted"].tolist(), labels.tolist(), values.tolist(), strict=True)
        for path, counted, row_labels, row_values in rows:
            if counted:
                names = [self.classes[label] for label in row_labels]
                line = {"path": path, "classes": names, "probabilities": [round(value, 6) for value in row_values]}
                self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
                self.written += 1
        self._file.flush()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
