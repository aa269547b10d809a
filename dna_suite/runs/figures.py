"""Matplotlib where it is installed, without its global state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dna_suite.errors import MissingExtra


def find_matplotlib() -> Any:
    """Matplotlib's class of a figure.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "plots") from None
    return Figure


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as a PNG file, whole or not at all."""
    part = path.with_name(f"{path.stem}.{os.getpid()}.part")
    try:
        figure.savefig(part, format="png", dpi=150)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
