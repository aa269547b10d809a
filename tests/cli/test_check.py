"""`dna check`: a table, and an exit code that a wrong operator turns into 1."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from dna_suite.attention.denoising import DnA
from dna_suite.attention.softmax import Softmax
from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.cli.check import choose_specs
from dna_suite.cli.main import main
from dna_suite.errors import DnaError


def test_every_operator_is_within_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--pattern", "none", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    rows = [line.split(",")[0] for line in lines if ", fused" in line]
    assert [row for row in rows if row != "differential plain"] == list(OPERATORS)
    assert "differential plain" in rows
    # Output and gradients in four precisions.
    assert all(len(re.findall(r"\de[-+]\d\d", line)) == 8 for line in lines if ", fused" in line or ", written out" in line)
    assert "!" not in out
    assert max(len(line) for line in lines) <= 100


def test_a_wrong_kernel_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Softmin without its sign: what a negative scale gives on some devices.
    monkeypatch.setattr(
        DnA, "mix_fused", lambda self, s, scores: self.combine(*(scores.softmax(s[q], s["k"], s["v"]) for q in ("q", "q_neg")))
    )
    assert main(["check", "--operator", "dna", "--pattern", "none", "--device", "cpu"]) == 1
    out = capsys.readouterr().out
    fused = next(line for line in out.splitlines() if line.startswith("dna, fused"))
    assert fused.count("!") >= 4
    assert "!" not in next(line for line in out.splitlines() if line.startswith("dna, written out"))
    assert re.search(r"^\d of these are above their bound$", out, flags=re.MULTILINE)


def test_a_number_that_is_none_is_no_agreement(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Softmax, s: dict[str, Tensor], scores: object) -> Tensor:
        return s["q"] * s["k"][..., :1, :] + s["v"][..., :1, :] * torch.nan

    monkeypatch.setattr(Softmax, "mix_fused", broken)
    assert main(["check", "--operator", "softmax", "--pattern", "none", "--device", "cpu"]) == 1
    assert "nan!" in capsys.readouterr().out


def test_a_refusal_is_shown_with_its_reason(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Softmax, s: object, scores: object) -> Tensor:
        raise DnaError("softmax does not take a mask")

    monkeypatch.setattr(Softmax, "mix_fused", refuse)
    assert main(["check", "--operator", "softmax", "--pattern", "none", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "refused" in next(line for line in out.splitlines() if line.startswith("softmax, fused"))
    assert out.count("note: softmax: softmax does not take a mask") == 1


def test_patterns_are_compared_on_every_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--operator", "dna", "--pattern", "fibottention", "random", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    rows = [line.split("  ")[0] for line in out.splitlines() if line.startswith("dna+")]
    both = ["fused", "written out", "offsets", "written out, zero_logit", "offsets, zero_logit"]
    drawn = [path for path in both if "offsets" not in path]
    variants = ("dna+fibottention", "dna+fibottention wythoff_modified", "dna+fibottention literal")
    expected = [f"{name}, {path}" for name in variants for path in both] + [f"dna+random, {path}" for path in drawn]
    # Two precisions fit beside each other, the others stand below.
    assert rows == expected * 2


def test_which_attentions_are_compared() -> None:
    assert [spec.label for spec in choose_specs(["dna", "dna"], ["none"])] == ["dna"]
    assert [spec.label for spec in choose_specs(["dna", "softmax"], ["none"])] == ["dna", "softmax"]
    assert [spec.label for spec in choose_specs(["cog"], ["random", "none"])] == ["cog", "cog+random"]
    # One form of each pattern, and fibottention's three variants.
    labels = [spec.label for spec in choose_specs(["cog"], None)]
    assert list(dict.fromkeys(labels)) == ["cog", *(f"cog+{name}" for name in PATTERNS)]
    assert labels.count("cog+fibottention") == 3
    assert [spec.options for spec in choose_specs(["differential"], ["none"])] == [{}, {"plain": True}]
    everything = {spec.label for spec in choose_specs(None, None)}
    assert everything >= {*OPERATORS, *(f"{name}+fibottention" for name in OPERATORS), *(f"dna+{name}" for name in PATTERNS)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--operator", "dan"], "unknown attention 'dan' (--operator); did you mean 'dna'?"),
        (["--pattern", "fibonaci"], "unknown attention pattern 'fibonaci' (--pattern)"),
        (["--device", "tpu"], "unknown device on this machine 'tpu' (--device)"),
        (["--operators", "dna"], "unknown option --operators; did you mean --operator?"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.gpu
def test_every_attention_is_within_its_bounds_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--device", "cuda"]) == 0, capsys.readouterr().out
