"""Errors that a user can repair: one line, what was given, what is allowed, the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LISTED_BESIDE_A_HINT = 12


class DnaError(ValueError):
    """A user's mistake, told in one line; the command line prints it and ends with exit code 2."""


class UnknownName(DnaError):
    """A name that is not in a table; the message lists the table and the nearest entry.

    Args:
        kind: what the name should be, as in "attention" or "recipe key".
        given: the name as typed.
        allowed: the names that exist.
        where: the file and line, or "command line", where it was typed.
        prefix: what stands before the name, as in "model.attention.".
    """

    def __init__(self, kind: str, given: object, allowed: Iterable[str], where: str | None = None, *, prefix: str = "") -> None:
        names = sorted(allowed)
        near = nearest(str(given), names)
        at = f" ({where})" if where else ""
        parts = [f"unknown {kind} {f'{prefix}{given}'!r}{at}"]
        if near:
            parts.append(f"did you mean {f'{prefix}{near}'!r}?")
        if not near or len(names) <= LISTED_BESIDE_A_HINT:
            parts.append(f"known: {', '.join(names) if names else 'none'}")
        super().__init__("; ".join(parts).replace("?;", "?"))
        self.given = given
        self.near = near


class MissingExtra(DnaError):
    """A package that a feature needs and that is not installed; the message holds the pip command.

    Args:
        package: the import name that failed.
        extra: the extra of this project that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'dna_suite[{extra}]'")


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that looks most like the given one, or None where none comes close."""
    found = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.6)
    return found[0] if found else None
