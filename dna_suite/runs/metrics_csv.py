"""metrics.csv in the run folder: one row per optimiser step that has numbers, continued by a resumed run."""

from __future__ import annotations

import csv
import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only


class MetricsCsv(Logger):
    """Rows of numbers keyed by the optimiser step; what is logged twice for a step shares its row.

    Lightning's CSVLogger removes an existing file and keeps a hundred steps in memory; this one goes on with the file and
    has every row on disk when it was logged.

    Args:
        path: the file; made with its folder at the first row.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        self.rows: dict[int, dict[str, str]] = {}
        self.columns = ["step"]
        self._last_row_at: int | None = None
        if self.path.is_file():
            self._read()

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def version(self) -> str:
        """None to tell apart: a run folder has one file."""
        return ""

    @property
    def save_dir(self) -> str:
        """The run folder."""
        return str(self.path.parent)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run folder holds the recipe."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Put values into the row of a step.

        Args:
            metrics: name -> number.
            step: optimiser steps done; None is the newest row's step.
        """
        newest = next(reversed(self.rows), None)
        step = step if step is not None else newest or 0
        values = {key: repr(float(value)) if not isinstance(value, int) else str(value) for key, value in metrics.items()}
        added = [key for key in values if key not in self.columns]
        self.columns += added
        known = step in self.rows
        self.rows.setdefault(step, {"step": str(step)}).update(values)
        if added or self._last_row_at is None or (newest is not None and step < newest) or not self.path.is_file():
            self._write()
        else:
            self._write_last(step, self._last_row_at if known else None)

    @rank_zero_only
    def rewind(self, step: int) -> None:
        """Drop the rows after a step, which a resumed run makes again."""
        if any(row > step for row in self.rows):
            self.rows = {row: values for row, values in self.rows.items() if row <= step}
            self._write()

    def _read(self) -> None:
        with open(self.path, newline="") as file:
            reader = csv.DictReader(file)
            self.columns = list(reader.fieldnames or ["step"])
            for row in reader:
                # The last line may be cut off by a kill.
                if row.get(self.columns[-1]) is not None and (row["step"] or "").isdigit():
                    self.rows[int(row["step"])] = {key: value for key, value in row.items() if value}

    def _write(self) -> None:
        """The whole file anew: a column was added, or rows were taken away."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f".{self.path.name}.part")
        self.rows = dict(sorted(self.rows.items()))
        with open(part, "w", newline="") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            for row in self.rows.values():
                self._last_row_at = file.tell()
                writer.writerow(row)
        os.replace(part, self.path)

    def _write_last(self, step: int, over: int | None) -> None:
        """The newest row, over its former self at that byte, or at the end."""
        with open(self.path, "r+", newline="") as file:
            file.seek(0, os.SEEK_END)
            if over is not None:
                file.seek(over)
                file.truncate()
            self._last_row_at = file.tell()
            csv.DictWriter(file, self.columns).writerow(self.rows[step])
