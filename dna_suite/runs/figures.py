"""Matplotlib where it is installed, without its global state."""

from __future__ import annotations

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
