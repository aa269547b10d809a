"""The golden cases of Fibottention, and patterns built for tests."""

import json
import math
from pathlib import Path

import torch

from dna_suite.attention.fibottention import Fibottention
from dna_suite.attention.patterns import build_pattern
from dna_suite.spec import AttentionSpec

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "fib_golden.json").read_text())
CASES = {case["id"]: case for case in GOLDEN["cases"]}


def make_pattern(name="fibottention", *, heads=3, layer=0, prefix=1, **options):
    """The pattern of one layer; sets in their own order unless told."""
    if name == "fibottention":
        options.setdefault("shuffle", False)
    return build_pattern(AttentionSpec(pattern=name, options=options), heads=heads, layer=layer, prefix=prefix)


def make_case(case, **options) -> Fibottention:
    """The pattern of a golden case, whose windows are given as numbers."""
    windows = {"window_min": case["wmin"], "window_max": case["wmax"]}
    return make_pattern(heads=case["h"], variant=case["variant"], **windows, **options)


def make_tensors(example):
    """Queries, keys and values of a numeric example, [1, heads, tokens, head_dim] in float64, a class token first."""
    heads, tokens, width = example["h"], example["N"] + 1, example["head_dim"]
    return [
        torch.tensor(
            [
                [[math.sin(0.7 * a + 1.3 * h + 0.9 * t + 2.1 * e) for e in range(width)] for t in range(tokens)]
                for h in range(heads)
            ],
            dtype=torch.float64,
        ).unsqueeze(0)
        for a in (1, 2, 3)
    ]
