"""Tables of the catalogue that installed packages add to, through entry points."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from dna_suite.errors import DnaError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Entry = TypeVar("Entry")

NAME = re.compile(r"[a-z][a-z0-9_-]*")


class Extended(Mapping[str, Entry]):
    """Our own entries, then those that installed packages register; the packages are looked for at the first question.

    Args:
        group: the entry-point group.
        own: our entries by name.
        kind: the class of an entry.

    Raises:
        DnaError: at the first question, where a package takes a name that is taken, or names something that cannot be read
            without torch or is no entry; the package is named.
    """

    def __init__(self, group: str, own: Mapping[str, Entry], kind: type[Entry]) -> None:
        self.group, self.own, self.kind = group, own, kind
        self._table: dict[str, Entry] | None = None

    @property
    def table(self) -> dict[str, Entry]:
        """Every entry by name."""
        if self._table is None:
            self._table = self._read()
        return self._table

    def __getitem__(self, name: str) -> Entry:
        return self.table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def _read(self) -> dict[str, Entry]:
        # 20 ms, and `dna --help` has no question.
        from importlib.metadata import entry_points

        table = dict(self.own)
        owners = dict.fromkeys(table, "dna_suite")
        for point in sorted(entry_points(group=self.group), key=lambda point: (point.name, _package(point))):
            place = f"{self.group} entry {point.name!r} of the installed package {_package(point)}"
            if point.name in table:
                raise DnaError(f"{place}: {owners[point.name]} has that name already; rename it there, or uninstall the package")
            if not NAME.fullmatch(point.name):
                raise DnaError(f"{place}: names are small letters, digits, - and _, a letter first")
            table[point.name] = self._load(point, place)
            owners[point.name] = _package(point)
        return table

    def _load(self, point: EntryPoint, place: str) -> Entry:
        was_loaded = "torch" in sys.modules
        try:
            entry = point.load()
        except Exception as error:
            raise DnaError(f"{place}: {point.value} cannot be read: {type(error).__name__}: {error}") from error
        if "torch" in sys.modules and not was_loaded:
            raise DnaError(f"{place}: reading {point.value} imports torch; the class belongs into a module of its own")
        if not isinstance(entry, self.kind):
            raise DnaError(f"{place}: {point.value} is a {type(entry).__name__}, not a {self.kind.__name__} of the catalogue")
        return entry


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
