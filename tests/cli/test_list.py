"""`dna list`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from torch import nn

from dna_suite.attention.registry import build_attention, operator_class
from dna_suite.catalogue import BACKBONES, DATASETS, METRICS, OPERATORS, OUR_OPERATORS, PATTERNS, TASKS
from dna_suite.cli.list import LISTS
from dna_suite.cli.main import main
from dna_suite.cli.shipped import FOLDERS, shipped_files
from dna_suite.spec import AttentionSpec


def test_everything_is_listed_within_the_width(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = {line.split()[0] for line in lines if line.startswith("  ")}
    shipped = {f"{folder}/{path.name}" for folder in FOLDERS for path in shipped_files(folder)}
    sets = {name for group in DATASETS.values() for name in group}
    assert {*OPERATORS, *BACKBONES, *TASKS, *METRICS, *sets, *shipped} <= names
    assert {line.rstrip(":") for line in lines if line.endswith(":") and not line.startswith(" ")} == set(LISTS)
    assert max(len(line) for line in lines) <= 100


def test_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "attention"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "attention:"
    rows = [line for line in lines[1:] if line[2] != " "]
    assert [row.split()[0] for row in rows] == list(OPERATORS)
    start = lines.index(next(row for row in rows if row.split()[0] == "dna"))
    assert [line[20:].split(maxsplit=1) for line in lines[start : start + 7]] == [
        ["formula", "s(Q+ K') V+ + a s^(Q- K') V-"],
        ["streams", "q q_neg k v v_neg"],
        ["options", "alpha=0.5"],
        ["cost", "1.2 x softmax's multiply-adds in ViT-B, 1.5 x its layer's parameters"],
        ["engine", "SDPA, two calls"],
        ["keeps", "N x N maps with dropout or learned bias, else none above 128 tokens"],
        ["source", "DnA section 3.2, Algorithm 1"],
    ]


def test_patterns_say_what_they_keep(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "patterns"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:] if line[2] != " "] == list(PATTERNS)
    for word in ("pairs", "options", "engine", "source"):
        assert sum(word in line.split()[:2] for line in lines) >= len(PATTERNS)


@pytest.mark.parametrize("name", OUR_OPERATORS)
def test_listed_costs_are_those_of_the_layers(name: str) -> None:
    multiply_adds, parameters = layer_cost(name)
    base, base_parameters = layer_cost("softmax")
    cost = OUR_OPERATORS[name].cost
    assert cost is not None
    # Twelve layers of ViT-B, whose whole is 17,582,740,224 with softmax; three digits are listed.
    assert cost.multiply_adds == pytest.approx(1 + 12 * (multiply_adds - base) / 17_582_740_224, abs=6e-4)
    assert operator_class(name).small == cost.written_out
    assert cost.parameters == pytest.approx(parameters / base_parameters, abs=6e-4)


def layer_cost(name: str) -> tuple[int, int]:
    """Multiply-adds of one layer of ViT-B at 224 pixels, and its parameters."""
    layer = build_attention(AttentionSpec(name), dim=768, heads=12, layer=1, depth=12, device="meta")
    projections = 197 * sum(part.weight.numel() for part in layer.children() if isinstance(part, nn.Linear))
    maps = layer.operator.multiply_adds(12, 197, 197, layer.key_dim)
    return projections + maps, sum(parameter.numel() for parameter in layer.parameters())


def test_every_recipe_says_what_it_is() -> None:
    assert {name for name, comment in LISTS["recipes"]() if not comment} == set()


def test_a_wrong_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "attentions"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "did you mean 'attention'?" in error


def test_listing_needs_none_of_the_slow_imports() -> None:
    # They are what would take seconds; without them a list is there in 0.1 s of CPU time.
    code = (
        "import sys; from dna_suite.cli.main import main; main(['list']);"
        "print(sorted({'torch', 'numpy', 'lightning', 'rich'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
