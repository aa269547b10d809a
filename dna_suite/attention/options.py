"""Checks an attention's name, pattern and options against the catalogue, without torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dna_suite.catalogue import OPERATORS, PATTERNS
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
    operator_options(spec, where)


def operator_options(spec: AttentionSpec, where: Callable[[str], str | None] = _nowhere) -> dict[str, Any]:
    """The operator's options with every default filled in.

    Args:
        spec: the attention.
        where: as for `check_attention`.

    Raises:
        UnknownName: an option is not one of the operator's.
        DnaError: an option's value has not the type of its default, or is no finite number.
    """
    defaults = OPERATORS[spec.name].options
    for option in spec.options:
        if option not in defaults:
            raise UnknownName(f"option of attention {spec.name!r}", option, defaults, where(f"options.{option}"))
    values = {option: spec.options.get(option, default) for option, default in defaults.items()}
    return {option: _checked(option, value, defaults[option], where) for option, value in values.items()}


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
