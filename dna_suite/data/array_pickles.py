"""Pickles of plain values and numpy arrays, read without running anything else that a file might name."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from dna_suite.errors import DnaError

# What numpy's arrays name in a pickle, under the module names of numpy 1 and 2.
ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
}


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that knows numpy's arrays and plain values only."""

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle names, if it is part of an array.

        Raises:
            DnaError: it is anything else.
        """
        if (module, name) not in ALLOWED:
            raise DnaError(f"names {module}.{name}; only numpy arrays and plain values are read")
        return ALLOWED[module, name]


def read_pickle(content: bytes, place: str) -> dict[str, Any]:
    """The dictionary of a pickle that Python 2 or 3 wrote, with texts as keys.

    Args:
        content: the pickle.
        place: where it is from, for messages.

    Raises:
        DnaError: it names something else than arrays, is damaged, or holds no dictionary.
    """
    try:
        # Texts of Python 2 are bytes; latin1 maps each to one character, and numpy takes its buffers back from that.
        found = ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except DnaError as problem:
        raise DnaError(f"{place}: {problem}") from None
    except Exception as problem:
        # A damaged pickle can raise almost anything.
        raise DnaError(f"{place}: no pickle of arrays ({type(problem).__name__}: {problem})") from None
    if not isinstance(found, dict):
        raise DnaError(f"{place}: holds {type(found).__name__}, not a dictionary")
    return found
