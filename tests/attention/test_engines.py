"""Which engine runs a pattern, and that it can be forced and read."""

from unittest import mock

import pytest
import torch
from torch.nn import functional as F

from dna_suite.attention import engines, scores
from dna_suite.attention.engines import CROSSOVER, choose_engine, describe_engine
from dna_suite.attention.registry import build_attention
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec

from .pattern_cases import make_pattern

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(engines, "count_threads", lambda: 1)


def build_layer(name="softmax", pattern="longformer", *, attn_drop=0.0, **options):
    spec = AttentionSpec(name, pattern, options=options)
    return build_attention(spec, dim=12, heads=3, layer=0, depth=1, prefix=1, attn_drop=attn_drop)


def runs_offsets(layer, tokens=CROSSOVER + 1, **call):
    """Whether a call of the layer reaches the offset engine."""
    with mock.patch.object(scores, "attend_diagonals", wraps=scores.attend_diagonals) as called:
        layer(torch.randn(1, tokens, 12), **call)
    return called.called


def test_offsets_run_from_the_crossover_on():
    pattern = make_pattern(heads=12)
    assert choose_engine(pattern, CROSSOVER, CPU) == "dense"
    assert choose_engine(pattern, CROSSOVER + 1, CPU) == "offsets"
    assert choose_engine(pattern, 16385, CUDA) == "dense"


def test_more_threads_move_the_crossover(monkeypatch):
    monkeypatch.setattr(engines, "count_threads", lambda: 4)
    pattern = make_pattern(heads=12)
    assert choose_engine(pattern, 4 * CROSSOVER, CPU) == "dense"
    assert choose_engine(pattern, 4 * CROSSOVER + 1, CPU) == "offsets"


def test_many_offsets_stay_with_the_kernel():
    assert choose_engine(make_pattern("longformer", window=7), CROSSOVER + 1, CPU) == "offsets"
    assert choose_engine(make_pattern("longformer", window=8), CROSSOVER + 1, CPU) == "dense"
    assert choose_engine(make_pattern("bigbird"), 1025, CPU) == "dense"


def test_engines_are_taken_at_their_word():
    assert choose_engine(make_pattern("longformer", engine="dense"), 4097, CPU) == "dense"
    assert choose_engine(make_pattern("longformer", engine="offsets"), 17, CPU) == "offsets"
    with pytest.raises(DnaError, match=r"attention\.options\.engine offsets cannot run with the device cuda: auto or dense can"):
        choose_engine(make_pattern("longformer", engine="offsets"), 17, CUDA)


def test_the_call_runs_what_is_said():
    layer = build_layer("dna")
    for tokens in (17, CROSSOVER + 1):
        assert runs_offsets(layer, tokens) == (describe_engine(layer, tokens, CPU) == "offsets")
    assert describe_engine(layer, CROSSOVER + 1, CPU) == "offsets"
    assert describe_engine(layer, CROSSOVER + 1, CUDA) == "dense, masked"
    assert describe_engine(build_layer(pattern=None), CROSSOVER + 1, CPU) == "dense"


def test_a_compiled_call_is_dense(monkeypatch):
    monkeypatch.setattr(engines.torch.compiler, "is_compiling", lambda: True)
    assert choose_engine(make_pattern(heads=12), CROSSOVER + 1, CPU) == "dense"
    with pytest.raises(DnaError, match=r"offsets cannot run with torch\.compile"):
        choose_engine(make_pattern(engine="offsets"), CROSSOVER + 1, CPU)


def test_the_written_out_path_keeps_its_maps():
    layer = build_layer(engine="offsets")
    layer.fused = False
    assert not runs_offsets(layer)
    assert describe_engine(layer, CROSSOVER + 1, CPU) == "dense, masked"


@pytest.mark.parametrize("call", [{"bias": torch.zeros(1, 1, 1, 1)}, {"mask": torch.ones(1, 1, dtype=torch.bool)}])
def test_a_bias_or_a_mask_of_the_call_goes_dense(call):
    assert not runs_offsets(build_layer(), **call)
    with pytest.raises(DnaError, match=f"offsets cannot run with a {next(iter(call))}"):
        build_layer(engine="offsets")(torch.randn(1, 17, 12), **call)


def test_dropout_of_maps_goes_dense_in_training_only():
    layer = build_layer(attn_drop=0.5)
    assert not runs_offsets(layer.train())
    assert describe_engine(layer, CROSSOVER + 1, CPU) == "dense, masked"
    assert runs_offsets(layer.eval())


def test_operators_of_other_kernels_go_dense():
    assert not runs_offsets(build_layer("cog"))
    with pytest.raises(DnaError, match="offsets cannot run with the operator Cog"):
        build_layer("cog", engine="offsets")(torch.randn(1, 17, 12))


def test_the_masked_kernel_gets_four_axes():
    seen = []
    kernel = F.scaled_dot_product_attention

    def spy(*args, attn_mask, **kwargs):
        seen.append(attn_mask)
        return kernel(*args, attn_mask=attn_mask, **kwargs)

    # Without gradients: a training step of so few tokens is written out.
    with torch.no_grad(), mock.patch.object(scores.F, "scaled_dot_product_attention", spy):
        build_layer("dna", "bigbird")(torch.randn(2, 17, 12))
    assert [(mask.shape, mask.dtype) for mask in seen] == [((1, 3, 17, 17), torch.bool)] * 2


def test_gradients_of_a_layer_do_not_depend_on_the_engine():
    layer = build_layer("dna", "fibottention", window_min=4, window_max=12).double()
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    gradients = {}
    for layer.pattern.engine in ("dense", "offsets"):
        layer.zero_grad()
        layer(x).square().sum().backward()
        gradients[layer.pattern.engine] = [parameter.grad.clone() for parameter in layer.parameters()]
    for dense, offsets in zip(*gradients.values(), strict=True):
        # float64 rounding of sums of 34 terms, in another order.
        torch.testing.assert_close(offsets, dense, rtol=1e-10, atol=1e-13)
