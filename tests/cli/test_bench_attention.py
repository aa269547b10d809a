"""`dna bench attention` and `dna bench model`: what is measured, with numbers that are counted; times themselves are no test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from dna_suite.cli import bench_timing
from dna_suite.cli.bench import run
from dna_suite.cli.bench_attention import growth, pairs, slope
from dna_suite.cli.bench_plot import plot_growth
from dna_suite.cli.bench_subjects import Shape, build_layers, streams_subjects
from dna_suite.errors import DnaError, MissingExtra

SMALL = ["--dim", "24", "--heads", "3", "--rounds", "2", "--threads", "1"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call a turn, and the threads of the session left as they are."""
    monkeypatch.setattr(bench_timing, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


def test_attention_counts_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["softmax", "dna", "differential", "dna+longformer"]
    out = tmp_path / "bench.json"
    assert run(["attention", "--operators", *names, "--lengths", "17", "145", "--batch", "2", *SMALL, "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    assert content["environment"]["hardware"]
    found = content["benchmarks"]["attention"]
    groups = {(group["part"], group["tokens"]): group for group in found["results"]}
    assert groups.keys() == {(part, tokens) for part in ("streams", "layer") for tokens in (17, 145)}
    streams, layer = groups["streams", 145]["subjects"], groups["layer", 145]["subjects"]
    # q, k, v and the output of 2 x 145 x 24 numbers, and a logarithm for each head's query; an N x N map written out.
    stream = 2 * 145 * 24 * 4
    assert streams["softmax"]["kept_bytes"] == 4 * stream + 2 * 3 * 145 * 4
    assert streams["softmax, written out"]["kept_bytes"] >= 3 * stream + 2 * 3 * 145 * 145 * 4
    assert streams["dense"]["multiply_adds"] == streams["softmax"]["multiply_adds"] == 2 * 145 * 145 * 24
    assert streams["dna"]["multiply_adds"] == 2 * streams["softmax"]["multiply_adds"]
    # 144 patches keep themselves and two neighbours, the class token its row and column.
    assert streams["dna+longformer"]["multiply_adds"] == 2 * 2 * 24 * (144 + 2 * 143 + 2 * 144 + 1)
    for subject in (*streams.values(), *layer.values()):
        assert all(subject[passes]["ms"] > 0 and subject[passes]["samples_per_second"] > 0 for passes in ("forward", "step"))
    compared = {(ratio["attention"], ratio["against"]) for group in groups.values() for ratio in group["ratios"]}
    assert compared >= {
        ("dna", "dna, written out"),
        ("dna", "dense"),
        ("softmax", "timm Attention"),
        ("differential", "timm DiffAttention"),
        ("dna+longformer", "dna+longformer, masked"),
        ("dna+longformer", "dna+longformer, offsets"),
    }
    (dna,) = [ratio for ratio in groups["layer", 145]["ratios"] if (ratio["attention"], ratio["against"]) == ("dna", "softmax")]
    assert dna["kept"] == layer["dna"]["kept_bytes"] / layer["softmax"]["kept_bytes"]
    assert dna["forward"]["rounds"] == 2
    theory = {row["attention"]: row["theory"] for row in found["slopes"]}
    assert theory["dna"] == pytest.approx(2.0)
    assert 1.0 < theory["dna+longformer"] < 1.2
    assert "streams, 145 tokens, batch 2" in capsys.readouterr().out


def test_every_engine_gives_the_same_numbers() -> None:
    layers = build_layers("dna+longformer", Shape(2, 17, 24, 3, torch.float64, "cpu"))
    assert list(layers) == ["dna+longformer", "dna+longformer, masked", "dna+longformer, offsets"]
    state = layers["dna+longformer"].state_dict()
    x = torch.randn(2, 17, 24, dtype=torch.float64)
    outs = []
    for layer in layers.values():
        layer.load_state_dict(state)
        outs.append(layer(x))
    assert all((out - outs[0]).abs().max() < 1e-14 for out in outs)
    dense = build_layers("dna", Shape(2, 17, 24, 3, torch.float32, "cpu"))
    assert [layer.fused for layer in dense.values()] == [True, False]


def test_a_step_reaches_every_stream_and_parameter() -> None:
    subject = streams_subjects(["dna"], Shape(1, 9, 24, 3, torch.float32, "cpu"))["dna"]
    out = subject.run()
    gradients = torch.autograd.grad(out, subject.leaves, subject.weights)
    assert len(gradients) == 6
    assert all(gradient.abs().max() > 0 for gradient in gradients)


def test_who_is_compared_with_whom() -> None:
    there = ["dense", "softmax", "softmax, written out", "dna", "dna, written out"]
    assert pairs("streams", ["softmax", "dna"], there) == [
        ("softmax", "softmax, written out"),
        ("softmax", "dense"),
        ("dna", "dna, written out"),
        ("dna", "dense"),
    ]


def group(tokens: int, ms: float, count: int | None) -> dict[str, Any]:
    return {"part": "streams", "tokens": tokens, "batch": 2, "subjects": {"a": {"forward": {"ms": ms}, "multiply_adds": count}}}


def test_growth_is_a_slope_on_logarithmic_axes() -> None:
    assert slope([(2, 8.0), (4, 64.0), (8, 512.0)]) == pytest.approx(3.0)
    (row,) = growth([group(10, 1.0, 100), group(20, 4.0, 200)])
    assert row["measured"] == pytest.approx(2.0)
    assert row["theory"] == pytest.approx(1.0)
    assert growth([group(10, 1.0, 100)]) == []
    assert growth([group(10, 1.0, None), group(20, 4.0, None)])[0]["theory"] is None


def test_a_plot_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    # Before anything is measured.
    with pytest.raises(MissingExtra, match=r"pip install 'dna_suite\[plots\]'"):
        run(["attention", "--lengths", "9", "17", *SMALL, "--plot", str(tmp_path / "cost.png")])


def test_a_plot_needs_two_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", MagicMock())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", MagicMock())
    with pytest.raises(DnaError, match=r"--plot cost.png: growth needs two lengths"):
        run(["attention", "--lengths", "9", *SMALL, "--plot", "cost.png"])


def test_a_plot_shows_times_and_beside_them_the_growth_of_the_multiply_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is drawn, number by number.
    figure = MagicMock()
    monkeypatch.setitem(sys.modules, "matplotlib", MagicMock())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", MagicMock(Figure=lambda **_: figure))
    axes = figure.subplots.return_value
    axes.plot.return_value = (MagicMock(),)
    results = [group(10, 1.0, 100), group(20, 6.0, 300)]
    plot_growth(results, growth(results), tmp_path / "cost.png")
    measured, expected = axes.plot.call_args_list
    # For one sample of two.
    assert measured.args == ([10, 20], [0.5, 3.0])
    assert expected.args == ([10, 20], [1.0, 3.0])
    figure.savefig.assert_called_once_with(tmp_path / "cost.png", dpi=150)


def test_models_are_compared_with_timms_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    shape = ["--backbone", "vit_digits", "--size", "tiny", "--image_size", "32", "--batch", "2"]
    assert run(["model", "--operators", "dna", *shape, "--rounds", "2", "--threads", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text())["benchmarks"]["model"]
    assert list(found["models"]) == ["timm", "softmax", "dna"]
    parameters = {name: model["parameters"] for name, model in found["models"].items()}
    assert parameters["timm"] == parameters["softmax"]
    # Two blocks, two more matrices of 48 x 48 with their biases in each, and an alpha for each of three heads.
    assert parameters["dna"] == parameters["softmax"] + 2 * (2 * (48 * 48 + 48) + 3)
    over = [(ratio["attention"], ratio["over"]) for ratio in found["ratios"]]
    assert over == [("softmax", "timm"), ("dna", "timm"), ("dna", "softmax")]
    assert "dna over timm" in capsys.readouterr().out


def test_engines_can_be_left_out() -> None:
    told = Shape(1, 17, 24, 3, torch.float32, "cpu", ["offsets"])
    assert list(build_layers("dna+longformer", told)) == ["dna+longformer", "dna+longformer, offsets"]
    assert list(build_layers("dna", told)) == ["dna"]
