"""How an error is measured."""

import math
from dataclasses import replace

import torch

from dna_suite.attention.accuracy import Path, list_cases, list_paths, max_error, measure_accuracy
from dna_suite.attention.softmax import Softmax
from dna_suite.spec import AttentionSpec


def test_the_largest_error_over_the_largest_number():
    expected = torch.tensor([4.0, -8.0], dtype=torch.float64)
    assert max_error(0.0, torch.tensor([4.0, -7.0]), expected) == 1 / 8
    assert max_error(0.5, torch.tensor([4.0, -7.0]), expected) == 0.5
    assert math.isnan(max_error(0.5, torch.tensor([4.0, math.nan]), expected))
    assert math.isnan(max_error(math.nan, torch.tensor([4.0, -8.0]), expected))


def test_a_wrong_gradient_is_seen_although_the_output_is_right(monkeypatch):
    def detached(self, s, scores):
        values = s["v"] + s["v"].detach() * 0.0
        return scores.softmax(s["q"], s["k"].detach() + 0.0 * s["k"], values)

    monkeypatch.setattr(Softmax, "mix_fused", detached)
    found = measure_accuracy(AttentionSpec(), Path("fused", True), torch.float64)
    assert found.output < 1e-14
    assert found.gradient == 1.0


def test_paths_and_calls_that_are_tried():
    assert [path.name for path in list_paths(AttentionSpec("dna"), "cpu")] == ["fused", "written out"]
    names = [path.name for path in list_paths(AttentionSpec("dna", "longformer"), "cpu")]
    assert names == ["fused", "written out", "offsets", "written out, zero_logit", "offsets, zero_logit"]
    assert "offsets" not in {path.name for path in list_paths(AttentionSpec("dna", "longformer"), "cuda")}
    # Random pairs have no offsets; cog has signs that the offsets know nothing of.
    for spec in (AttentionSpec("dna", "random"), AttentionSpec("cog", "longformer")):
        assert [path.name for path in list_paths(spec, "cpu")] == ["fused", "written out", "written out, zero_logit"]
    dense = list_cases(AttentionSpec("dna"), Path("fused", True))
    assert {(case.bias, case.mask) for case in dense} == {(False, False), (False, True), (True, False), (True, True)}
    assert any(case.queries != case.keys for case in dense)


def test_a_pattern_that_is_not_applied_is_found(monkeypatch):
    monkeypatch.setattr(Softmax, "mix_fused", lambda self, s, scores: replace(scores, mask=None).softmax(s["q"], s["k"], s["v"]))
    spec = AttentionSpec("softmax", "longformer")
    fused, written_out, *_ = list_paths(spec, "cpu")
    assert measure_accuracy(spec, fused, torch.float32).output > 0.1
    assert measure_accuracy(spec, written_out, torch.float32).output < 1e-6
