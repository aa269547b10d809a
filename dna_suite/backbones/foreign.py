"""What files of others say about themselves: by the names of their tensors, and by what lies beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec


def check_tensors(state: Mapping[str, Any], file: Path) -> dict[str, Tensor]:
    """A state dict as it is.

    Raises:
        DnaError: it is empty, or holds something else than tensors.
    """
    other = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if other or not state:
        raise DnaError(f"{file}: no state dict: {', '.join(map(str, other[:5])) or 'nothing'} instead of tensors")
    return dict(state)


def unwrap_names(tensors: dict[str, Tensor], file: Path) -> dict[str, Tensor]:
    """Tensors by names without what a compiled or distributed model's wrapper puts into them.

    Raises:
        DnaError: that makes two of them one.
    """
    names = {name: name.replace("_orig_mod.", "") for name in tensors}
    if all(name.startswith("module.") for name in names.values()):
        names = {name: bare.removeprefix("module.") for name, bare in names.items()}
    found = {names[name]: tensor for name, tensor in tensors.items()}
    if len(found) != len(tensors):
        raise DnaError(f"{file}: holds tensors twice, with and without the name of a wrapper")
    return found


def find_normalisation(facts: Mapping[str, Any]) -> dict[str, list[float]]:
    """Mean and deviation, where both are three numbers."""
    found = {key: facts.get(key) for key in ("mean", "std")}
    fine = all(
        isinstance(value, list | tuple) and len(value) == 3 and all(isinstance(number, int | float) for number in value)
        for value in found.values()
    )
    return {key: [float(number) for number in value] for key, value in found.items() if value} if fine else {}


def guess_attention(tensors: Mapping[str, Tensor]) -> AttentionSpec:
    """The attention that tensors of others were made with, by the streams that they have and their widths.

    An operator without parameters of its own and with the widths of softmax looks like softmax.
    """
    streams = {part for name in tensors for part in name.split(".")[-2:]}
    if "q_neg" in streams:
        return AttentionSpec("dna" if "v_neg" in streams else "dna-q")
    if "v_neg" in streams:
        return AttentionSpec("dna-v")
    if "alpha" in streams:
        return AttentionSpec("dna-shared")
    if "lambda_plain" in streams or "lambda_q1" in streams:
        return AttentionSpec("differential", options={"plain": "lambda_plain" in streams})
    q, v = (next((t for name, t in tensors.items() if f".{name}".endswith(f".{stream}.weight")), None) for stream in "qv")
    if q is None or v is None or q.dim() != 2:
        return AttentionSpec()
    wide = 2 * q.shape[0] == 3 * q.shape[1] and v.shape == q.shape
    return AttentionSpec("softmax-wide" if wide else "softmax-value" if len(v) == 2 * len(q) else "softmax")
