"""The golden cases of the operators as tensors: streams, bias and mask follow the file's "meta"."""

import json
import math
from pathlib import Path

import torch

from dna_suite.attention.operator import Operator
from dna_suite.attention.registry import operator_class

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "operators_golden.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["cases"]}
OPERATORS = (
    "softmax",
    "softmax-wide",
    "softmax-value",
    "dna",
    "dna-q",
    "dna-v",
    "dna-shared",
    "dna-shared-plain",
    "differential",
    "differential-plain",
    "cog",
)
DENOISING = ("dna", "dna-q", "dna-v", "dna-shared", "dna-shared-plain")
STREAMS = {"q": (1, 1.3), "q_neg": (2, 1.3), "k": (3, 1.3), "v": (4, 1.0), "v_neg": (5, 1.0)}
SCALARS = GOLDEN["meta"]["scalars"]
ALPHA = SCALARS["alpha"]
SCALE = 4**-0.5
# Layer index of the differential cases.
LAYER = 3


def fill(stream, shape, amplitude):
    """T(stream) of the golden file, float64."""
    numbers = [amplitude * math.sin(0.9 * i + 0.013 * i * i + 2.1 * stream) for i in range(math.prod(shape))]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def split_name(name):
    """Operator and options of a name in the golden file, where the plain form of differential attention has one of its own."""
    return ("differential", {"plain": True}) if name == "differential-plain" else (name, {})


def find_class(name) -> type[Operator]:
    """The class of an operator by its name in the golden file."""
    return operator_class(split_name(name)[0])


def find_scale(name):
    """The factor of one logit map for a head of four channels."""
    return find_class(name).logit_scale(SCALE)


def make_streams(case):
    """The streams of a case, [1, 2, tokens, 4]; values of "softmax-value" have 8 channels."""
    kind = find_class(case["operator"])
    key_dim, value_dim = kind.widths(4)
    made = {}
    for name in kind.streams:
        number, amplitude = STREAMS[name]
        made[name] = fill(number, (1, 2, 5, value_dim if name.startswith("v") else key_dim), amplitude)
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


def make_operator(name, alpha=ALPHA, head_dim=4) -> Operator:
    """An operator for two heads of four channels in float64, with the golden alpha, lambda and norm weight."""
    name, options = split_name(name)
    operator = operator_class(name)(2, head_dim, LAYER, **options).double()
    state = {key: torch.tensor(value, dtype=torch.float64) for key, value in golden_parameters(operator, alpha).items()}
    operator.load_state_dict(state)
    return operator


def golden_parameters(operator, alpha=ALPHA):
    """The golden numbers of an operator's parameters, by name."""
    made = {}
    for name, parameter in operator.named_parameters():
        length = parameter.numel()
        if name == "alpha":
            made[name] = alpha
        elif name == "lambda_plain":
            made[name] = SCALARS["lambda_plain"]
        elif name == "sub_norm.weight":
            made[name] = [1 + 0.1 * i for i in range(length)]
        else:
            row = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2").index(name)
            made[name] = [0.2 * math.sin(1 + 0.8 * i + 1.7 * row) for i in range(length)]
    return made
