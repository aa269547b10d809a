"""YAML read as data: plain values with the file and line of each key, no silent type changes, no key written twice."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dna_suite.errors import DnaError

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
SPECIAL = {
    "null": None,
    "~": None,
    "": None,
    "true": True,
    "false": False,
    ".inf": float("inf"),
    "-.inf": -float("inf"),
    ".nan": float("nan"),
}


@dataclass
class Document:
    """One YAML file or value.

    Args:
        values: the mapping as plain Python values.
        lines: dotted key -> line number, from 1.
    """

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def read_document(path: Path) -> Document:
    """The YAML mapping in a file.

    Raises:
        DnaError: the file cannot be read, is no YAML mapping, or writes a key twice; with file and line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise DnaError(f"{path}: cannot be read ({getattr(problem, 'strerror', None) or 'not UTF-8 text'})") from None
    try:
        node = yaml.compose(text, Loader=Loader)
    except yaml.YAMLError as problem:
        raise DnaError(f"{path}{_place(problem)}: {_reason(problem, text)}") from None
    document = Document()
    if node is None:
        return document
    if not isinstance(node, yaml.MappingNode):
        found = "list" if isinstance(node, yaml.SequenceNode) else "single value"
        raise DnaError(f"{path}:{node.start_mark.line + 1}: a recipe is a mapping of keys, this is a {found}")
    document.values = _mapping(node, "", document.lines, str(path))
    return document


def read_value(text: str, where: str = "command line") -> Any:
    """The plain value that a text stands for, as in `--key=VALUE`.

    Raises:
        DnaError: the text is no YAML value.
    """
    try:
        node = yaml.compose(text, Loader=Loader)
    except yaml.YAMLError:
        return text
    return None if node is None else _value(node, "", {}, where)


def _value(node: yaml.Node, dotted: str, lines: dict[str, int], where: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, dotted, lines, where)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, f"{dotted}[{number}]", lines, where) for number, item in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    if node.style in ("'", '"', "|", ">"):
        return node.value
    return plain_scalar(node.value)


def plain_scalar(text: str) -> Any:
    """A bare scalar by the rules of YAML 1.2: `no`, `010` and `12:30` stay text, `1e-3` is a number."""
    if text.lower() in SPECIAL:
        return SPECIAL[text.lower()]
    if INTEGER.match(text):
        return int(text)
    if FLOAT.match(text) and not re.match(r"[-+]?0[0-9]", text):
        return float(text)
    return text


def _mapping(node: yaml.MappingNode, dotted: str, lines: dict[str, int], where: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "<<":
            raise DnaError(f"{where}:{line}: a key is a plain word, not a {'merge' if key_node.value == '<<' else 'collection'}")
        key = key_node.value
        if key in seen:
            raise DnaError(f"{where}:{line}: {key!r} is written twice, first on line {seen[key]}; keep one")
        seen[key] = line
        path = f"{dotted}.{key}" if dotted else key
        lines[path] = line
        values[key] = _value(value_node, path, lines, where)
    return values


def _place(problem: yaml.YAMLError) -> str:
    mark = getattr(problem, "problem_mark", None)
    return "" if mark is None else f":{mark.line + 1}"


def _reason(problem: yaml.YAMLError, text: str) -> str:
    mark = getattr(problem, "problem_mark", None)
    lines = text.splitlines()
    if mark is not None and mark.line < len(lines) and lines[mark.line].lstrip(" ").startswith("\t"):
        return "a tab where YAML wants spaces"
    return str(getattr(problem, "problem", None) or problem).splitlines()[0]
