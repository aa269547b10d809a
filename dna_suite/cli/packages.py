"""Installed packages against what this project declares: there or not, within bounds, importable or why not."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Literal, NamedTuple

# Distributions whose import name is another one.
IMPORT_NAMES = {
    "pyyaml": "yaml",
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "hydra-core": "hydra",
    "pytest-xdist": "xdist",
    "types-pyyaml": "",
}
# Engines that no extra can name, and where they come from.
ENGINES = {"detectron2": "install it from its source tree, then 'dna_suite[detectron2]'"}
ABSENT = "is not installed"


class Finding(NamedTuple):
    """One line of the report: "stop" would end a run, "note" may, "ok" and "absent" are told for the record."""

    level: Literal["ok", "absent", "note", "stop"]
    topic: str
    text: str


def check_packages() -> Iterator[Finding]:
    """Each core dependency: one line for all that are right, one for each that is not."""
    findings = [_installed(requirement, missing="stop") for requirement in _requirements() if not requirement.extra]
    if not findings:
        yield Finding("note", "packages", "dna_suite runs without being installed, so nothing says what it needs: pip install .")
        return
    yield Finding("ok", "packages", ", ".join(finding.text for finding in findings if finding.level == "ok"))
    yield from (finding for finding in findings if finding.level != "ok")


def check_extras() -> Iterator[Finding]:
    """Which extras import, and why the others do not; nothing here stops a run that does not need them."""
    extras: dict[str, list[Finding]] = {}
    for requirement in _requirements():
        if requirement.extra and requirement.extra != "all":
            extras.setdefault(requirement.extra, []).append(_installed(requirement, missing="note"))
    for extra, findings in extras.items():
        wrong = [finding.text for finding in findings if finding.level != "ok"]
        if not wrong:
            yield Finding("ok", f"[{extra}]", ", ".join(finding.text for finding in findings))
            continue
        absent = all(text.endswith(ABSENT) for text in wrong)
        hint = f"; pip install 'dna_suite[{extra}]'" if absent else ""
        yield Finding("absent" if absent else "note", f"[{extra}]", f"{'; '.join(wrong)}{hint}")
    for engine, remedy in ENGINES.items():
        found = importable(engine, engine)
        hint = f"; {remedy}" if found.text.endswith(ABSENT) else ""
        yield Finding("absent" if hint else found.level, "engine", found.text + hint)


def first_line(error: Exception) -> str:
    """Kind and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class _Requirement(NamedTuple):
    """One line of the package's own metadata."""

    name: str
    bounds: str
    extra: str


def _requirements() -> list[_Requirement]:
    """What this package declares, without the references of one extra to others; empty where it runs without being installed."""
    try:
        lines = metadata.requires("dna_suite") or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        text, _, marker = line.partition(";")
        match = re.match(r"\s*([\w.-]+)\s*(\[.*\])?\s*(.*)", text)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if match and match[1].replace("-", "_") != "dna_suite":
            found.append(_Requirement(match[1], match[3].strip(), extra[1] if extra else ""))
    return found


def _installed(requirement: _Requirement, missing: Literal["note", "stop"]) -> Finding:
    """Whether a distribution is there, within its bounds, and imports."""
    name = requirement.name
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(missing, "packages", f"{name} {ABSENT}")
    if not _within(version, requirement.bounds):
        return Finding("stop" if missing == "stop" else "note", "packages", f"{name} {version} is outside {requirement.bounds}")
    return importable(IMPORT_NAMES.get(name.lower(), name.replace("-", "_")), f"{name} {version}", failed=missing)


def _within(version: str, bounds: str) -> bool:
    """Whether a version lies within bounds; unknown counts as yes."""
    try:
        from packaging.specifiers import SpecifierSet
    except ModuleNotFoundError:  # Lightning brings it; where it is missing, so is Lightning, and that is told
        return True
    return SpecifierSet(bounds, prereleases=True).contains(version)


def importable(module: str, text: str, failed: Literal["note", "stop"] = "note") -> Finding:
    """Whether a module imports; any exception at all counts, since packages raise what they like."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if module:
                importlib.import_module(module)
    except ModuleNotFoundError as error:
        reason = ABSENT if error.name == module else f"does not import: {first_line(error)}"
        return Finding(failed, "packages", f"{text} {reason}")
    except Exception as error:
        return Finding(failed, "packages", f"{text} does not import: {first_line(error)}")
    return Finding("ok", "packages", text)
