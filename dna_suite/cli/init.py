"""`dna init`: the shipped recipes and fragments as files of one's own."""

from __future__ import annotations

import shutil
from pathlib import Path

from dna_suite.cli.argv import Parser
from dna_suite.cli.shipped import FOLDERS, shipped_files
from dna_suite.errors import DnaError

SUMMARY = "copy the shipped recipes for editing"


def run(arguments: list[str]) -> int:
    """Copy tasks/ and configs/ into a folder.

    Raises:
        DnaError: one of the files is there already (nothing is copied then), or the folder cannot be written.
    """
    parser = Parser("dna init", SUMMARY)
    parser.add_argument("folder", metavar="DIR", help="gets tasks/ and configs/; made where it is missing")
    root = Path(parser.parse_args(arguments).folder)
    copies = {source: root / folder / source.name for folder in FOLDERS for source in shipped_files(folder)}
    there = [str(target) for target in copies.values() if target.exists()]
    if there:
        raise DnaError(f"{there[0]} exists{f' and {len(there) - 1} more' if there[1:] else ''}; nothing was copied")
    try:
        for source, target in copies.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    except OSError as error:
        raise DnaError(f"{error.filename or root} cannot be written: {error.strerror}") from None
    print(f"{len(copies)} files in {', '.join(str(root / folder) for folder in FOLDERS)}; run them from {root}:")
    print("  dna fit --config tasks/digits.yaml")
    return 0
