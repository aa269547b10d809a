"""The class of an operator that another package brings."""

from __future__ import annotations

import importlib

from dna_suite.attention.operator import Operator
from dna_suite.errors import DnaError


def load_implementation(name: str, path: str) -> type[Operator]:
    """The class that a catalogue entry names.

    Args:
        name: the operator.
        path: "module:class".

    Raises:
        DnaError: the path is no such text, the module cannot be imported, or holds no operator class of that name.
    """
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise DnaError(f'attention {name!r}: implementation {path!r} is not "module:class"')
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise DnaError(f"attention {name!r}: {path} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Operator)):
        raise DnaError(f"attention {name!r}: {path} is no subclass of dna_suite.attention.operator.Operator")
    return found
