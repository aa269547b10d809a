"""The golden cases of the operators as tensors: streams, bias and mask follow the file's "meta"."""

import json
import math
from pathlib import Path

import torch

from dna_suite.attention.operator import Operator
from dna_suite.attention.registry import operator_class

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "operators_golden.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["cases"]}
OPERATORS = ("softmax", "dna", "dna-q", "dna-v", "dna-shared", "dna-shared-plain")
STREAMS = {"q": (1, 1.3), "q_neg": (2, 1.3), "k": (3, 1.3), "v": (4, 1.0), "v_neg": (5, 1.0)}
ALPHA = GOLDEN["meta"]["scalars"]["alpha"]
SCALE = 4**-0.5


def fill(stream, shape, amplitude):
    """T(stream) of the golden file, float64."""
    numbers = [amplitude * math.sin(0.9 * i + 0.013 * i * i + 2.1 * stream) for i in range(math.prod(shape))]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def make_streams(case):
    """The streams of a case, [1, 2, tokens, 4]."""
    made = {name: fill(STREAMS[name][0], (1, 2, 5, 4), STREAMS[name][1]) for name in operator_class(case["operator"]).streams}
    queries = case.get("queries", 5)
    return {name: t[:, :, :queries] if name.startswith("q") else t for name, t in made.items()}


def make_bias(case):
    """The bias of a case, [1, 2, 5, 5], or None."""
    numbers = [0.8 * math.cos(1.1 * f + 0.007 * f * f + 0.3) for f in range(50)]
    return torch.tensor(numbers, dtype=torch.float64).reshape(1, 2, 5, 5) if case["bias"] else None


def make_mask(case):
    """The mask of a case, [5, 5], or None."""
    if case["mask"] is None:
        return None
    mask = torch.tensor([[(2 * i + 3 * j) % 5 != 1 or i == j for j in range(5)] for i in range(5)])
    if case["mask"] == "b":
        mask[1] = False
    return mask


def make_operator(name, alpha=ALPHA) -> Operator:
    """An operator for two heads of four channels in float64, with the golden alpha."""
    operator = operator_class(name)(2, 4).double()
    if getattr(operator, "alpha", None) is not None:
        with torch.no_grad():
            operator.alpha.copy_(torch.tensor(alpha, dtype=torch.float64))
    return operator
