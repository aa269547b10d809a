"""Checks an attention's name, pattern and options against the catalogue, without torch."""

from __future__ import annotations

import math
from typing import Any

from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec


def check_attention(spec: AttentionSpec) -> None:
    """Refuses a spec that names an operator, a pattern or an option that does not exist, or a value of the wrong type.

    Raises:
        UnknownName: the operator, the pattern or an option is not in the catalogue.
        DnaError: an option's value has not the type of its default, or is no finite number.
    """
    if spec.name not in OPERATORS:
        raise UnknownName("attention", spec.name, OPERATORS)
    if spec.pattern is not None and spec.pattern not in PATTERNS:
        raise UnknownName("attention pattern", spec.pattern, PATTERNS)
    operator_options(spec)


def operator_options(spec: AttentionSpec) -> dict[str, Any]:
    """The operator's options with every default filled in.

    Raises:
        UnknownName: an option is not one of the operator's.
        DnaError: an option's value has not the type of its default, or is no finite number.
    """
    defaults = OPERATORS[spec.name].options
    for option in spec.options:
        if option not in defaults:
            raise UnknownName(f"option of attention {spec.name!r}", option, defaults)
    return {option: _checked(option, spec.options.get(option, default), default) for option, default in defaults.items()}


def _checked(option: str, value: Any, default: object) -> Any:
    wanted = type(default)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if wanted is float and (whole or isinstance(value, float)):
        if math.isfinite(value):
            return float(value)
    elif type(value) is wanted:
        return value
    raise DnaError(f"attention.options.{option} is {value!r}: a {wanted.__name__} is needed, such as {default!r}")
