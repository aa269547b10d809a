"""What happened to each tensor when weights were loaded, as lines and as plain values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna_suite.attention.warm_start import Change

# What a change means for its tensor.
FATES = {
    "adapted": "loaded",
    "resized": "resized",
    "warm start": "initialised",
    "start value": "initialised",
    "re-initialised": "initialised",
    "dropped": "unused",
}
ORDER = ("loaded", "resized", "initialised", "unused")


@dataclass(frozen=True)
class LoadReport:
    """What happened to each tensor of the model and of the weights.

    Args:
        source: the file.
        attention: the attention of the weights and of the model, in words.
        copied: names of the tensors that were taken as they are.
        changes: one entry or more for each other tensor.
        left: what the file holds beside the tensors, by name: it was not used.
    """

    source: Path
    attention: tuple[str, str]
    copied: tuple[str, ...]
    changes: tuple[Change, ...]
    left: tuple[str, ...] = ()

    @property
    def reinitialised(self) -> tuple[str, ...]:
        """Tensors that keep the model's own start because the weights have none that fit."""
        return tuple(change.tensor for change in self.changes if change.action == "re-initialised")

    def fates(self) -> dict[str, tuple[str, list[str]]]:
        """Each tensor: "loaded", "resized", "initialised" or "unused", and the changes that say how, in words."""
        found: dict[str, tuple[str, list[str]]] = {name: ("loaded", []) for name in self.copied}
        for change in self.changes:
            fate, said = found.get(change.tensor, ("loaded", []))
            new = FATES[change.action]
            found[change.tensor] = (max(fate, new, key=ORDER.index), [*said, f"{change.action}: {change.detail}"])
        return found

    def lines(self) -> list[str]:
        """The report as text: a headline, the names of what was taken, then one line for each kind of change.

        The same in many layers is said once, with a star for the layer's number.
        """
        counts = Counter(fate for fate, _ in self.fates().values())
        old, new = self.attention
        told = ", ".join(f"{counts[fate]} {fate}" for fate in ORDER)
        groups: dict[tuple[str, str, str], list[str]] = {}
        for change in self.changes:
            groups.setdefault((FATES[change.action], change.action, any_layer(change.detail)), []).append(change.tensor)
        lines = [f"{self.source}: tensors {told}; attention {old} -> {new}"]
        if self.copied:
            lines.append(f"loaded: {counted(self.copied)}")
        for (fate, action, detail), names in groups.items():
            how = detail if action in (fate, "re-initialised", "dropped", "adapted") else f"{action}, {detail}"
            lines.append(f"{fate}: {counted(names)} ({how})")
        return [*lines, *([f"left in the file: {', '.join(self.left)}"] if self.left else [])]

    def plain(self) -> dict[str, Any]:
        """The report as plain values, every tensor by its name."""
        old, new = self.attention
        return {
            "source": str(self.source),
            "attention": {"weights": old, "model": new},
            "left_in_file": list(self.left),
            "tensors": {name: {"fate": fate, "how": how} for name, (fate, how) in self.fates().items()},
        }


def any_layer(text: str) -> str:
    """The text with layer numbers as stars, as in blocks.*.attn.q.weight."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", text)


def counted(names: Iterable[str]) -> str:
    """Names in a row; those that differ in the number of their layer alone are counted, as in 12 x blocks.*.norm1.weight."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(any_layer(name), []).append(name)
    return ", ".join(found[0] if len(found) == 1 else f"{len(found)} x {star}" for star, found in groups.items())
