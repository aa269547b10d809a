"""Checks an attention's name, pattern and options against the catalogue, without torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dna_suite.catalogue import CHOICES, LIMITS, OPERATORS, PATTERNS
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec


def _nowhere(key: str) -> str | None:
    return None


def check_attention(spec: AttentionSpec, where: Callable[[str], str | None] = _nowhere) -> None:
    """Refuses a spec that names an operator, a pattern or an option that does not exist, or a value of the wrong type.

    Args:
        spec: the attention.
        where: gives the file and line of "name", "pattern" or "options.NAME", for the message.

    Raises:
        UnknownName: the operator, the pattern or an option is not in the catalogue.
        DnaError: an option's value has not the type of its default, or is no finite number.
    """
    if spec.name not in OPERATORS:
        raise UnknownName("attention", spec.name, OPERATORS, where("name"))
    if spec.pattern is not None and spec.pattern not in PATTERNS:
        raise UnknownName("attention pattern", spec.pattern, PATTERNS, where("pattern"))
    allowed = {**OPERATORS[spec.name].options, **_pattern_defaults(spec)}
    for option in spec.options:
        if option not in allowed:
            raise UnknownName(f"option of attention {spec.label!r}", option, allowed, where(f"options.{option}"))
    operator_options(spec, where)
    pattern_options(spec, where)


def operator_options(spec: AttentionSpec, where: Callable[[str], str | None] = _nowhere) -> dict[str, Any]:
    """The operator's options with every default filled in.

    Args:
        spec: the attention.
        where: as for `check_attention`.

    Raises:
        DnaError: an option's value has not the type of its default, or is no finite number.
    """
    return _filled(spec, OPERATORS[spec.name].options, where)


def pattern_options(spec: AttentionSpec, where: Callable[[str], str | None] = _nowhere) -> dict[str, Any]:
    """The pattern's options with every default filled in; none where there is no pattern.

    Args:
        spec: the attention.
        where: as for `check_attention`.

    Raises:
        UnknownName: an option is not one of the words that it may be.
        DnaError: an option's value has not the type of its default, or lies outside its range.
    """
    values = _filled(spec, _pattern_defaults(spec), where)
    for option, value in values.items():
        place = where(f"options.{option}")
        if option in CHOICES and value not in CHOICES[option]:
            raise UnknownName(f"attention.options.{option}", value, CHOICES[option], place)
        if option in LIMITS and not LIMITS[option][0] <= value <= LIMITS[option][1]:
            low, high = LIMITS[option]
            at = f" ({place})" if place else ""
            raise DnaError(f"attention.options.{option} is {value!r}{at}: from {low:,} to {high:,}")
    return values


def _pattern_defaults(spec: AttentionSpec) -> Mapping[str, object]:
    return {} if spec.pattern is None else PATTERNS[spec.pattern].options


def _filled(spec: AttentionSpec, defaults: Mapping[str, object], where: Callable[[str], str | None]) -> dict[str, Any]:
    return {option: _checked(option, spec.options.get(option, default), default, where) for option, default in defaults.items()}


def _checked(option: str, value: Any, default: object, where: Callable[[str], str | None]) -> Any:
    wanted = type(default)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if wanted is float and (whole or isinstance(value, float)):
        if math.isfinite(value):
            return float(value)
    elif type(value) is wanted:
        return value
    place = where(f"options.{option}")
    at = f" ({place})" if place else ""
    raise DnaError(f"attention.options.{option} is {value!r}{at}: a {wanted.__name__} is needed, such as {default!r}")
