"""Checkpoints in the layouts of the released DnA code: loaded by name, compared with its formula, and written back."""

import argparse
import os
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.backbones.files import read_file
from dna_suite.backbones.images import build_image_model
from dna_suite.backbones.released import state_dict_for_released
from dna_suite.backbones.timm_weights import state_dict_for_timm
from dna_suite.backbones.weights import load_into, read_weights
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec

DIM, HEADS, DEPTH, PATCH, SIDE = 48, 3, 2, 8, 32
ROWS = {"qqkvv": ("q", "q_neg", "k", "v", "v_neg"), "qqkv": ("q", "q_neg", "k", "v")}


def build(name="dna", seed=0, class_token_position=False, **kwargs):
    torch.manual_seed(seed)
    model = build_image_model(
        "vit_digits",
        size="tiny",
        attention=AttentionSpec(name, **kwargs),
        num_classes=10,
        image_size=SIDE,
        class_token_position=class_token_position,
    )
    for parameter in model.parameters():
        # Large enough that maps are not flat and every part of the formula shows.
        torch.nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def released(layout: str, seed: int = 5) -> dict[str, torch.Tensor]:
    """A released state dict of random numbers: layout qqkvv, qqkv, legacy, or legacy-shared."""
    torch.manual_seed(seed)
    common = {
        "cls_token": (1, 1, DIM),
        "pos_embed": (1, (SIDE // PATCH) ** 2, DIM),
        "patch_embed.proj.weight": (DIM, 3, PATCH, PATCH),
        "patch_embed.proj.bias": (DIM,),
        "norm.weight": (DIM,),
        "norm.bias": (DIM,),
        "head.weight": (10, DIM),
        "head.bias": (10,),
    }
    fused = {"qqkvv": {"qqkvv": 5}, "qqkv": {"qqkv": 4}, "legacy-shared": {"qkv": 3, "q_neg": 1}}.get(
        layout, {"qkv": 3, "q_neg": 1, "v_neg": 1}
    )
    for block in range(DEPTH):
        shapes = {
            "norm1.weight": (DIM,),
            "norm1.bias": (DIM,),
            "attn.proj.weight": (DIM, DIM),
            "attn.proj.bias": (DIM,),
            "attn.neg_scalers": (HEADS,),
            "norm2.weight": (DIM,),
            "norm2.bias": (DIM,),
            "mlp.fc1.weight": (4 * DIM, DIM),
            "mlp.fc1.bias": (4 * DIM,),
            "mlp.fc2.weight": (DIM, 4 * DIM),
            "mlp.fc2.bias": (DIM,),
        }
        for part, times in fused.items():
            shapes |= {f"attn.{part}.weight": (times * DIM, DIM), f"attn.{part}.bias": (times * DIM,)}
        common |= {f"blocks.{block}.{name}": shape for name, shape in shapes.items()}
    return {name: 0.3 * torch.randn(shape, dtype=torch.float64) for name, shape in common.items()}


def attend(x: torch.Tensor, state: dict[str, torch.Tensor], sign: str) -> torch.Tensor:
    """The released attention of one layer, written from its formula: [batch, tokens, dim] in and out."""
    if "qqkvv.weight" in state or "qqkv.weight" in state:
        fused = "qqkvv" if "qqkvv.weight" in state else "qqkv"
        out = F.linear(x, state[f"{fused}.weight"], state[f"{fused}.bias"])
        streams = dict(zip(ROWS[fused], out.split(DIM, dim=-1), strict=True))
    else:
        q, k, v = F.linear(x, state["qkv.weight"], state["qkv.bias"]).split(DIM, dim=-1)
        streams = {"q": q, "k": k, "v": v}
        for name in ("q_neg", "v_neg"):
            if f"{name}.weight" in state:
                streams[name] = F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])
    s = {name: t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for name, t in streams.items()}
    scale = (DIM // HEADS) ** -0.5
    positive = (scale * s["q"] @ s["k"].mT).softmax(-1)
    negative = F.softmin(scale * s["q_neg"] @ s["k"].mT, dim=-1) * state["neg_scalers"].view(1, HEADS, 1, 1)
    values = s.get("v_neg", s["v"])
    mixed = positive @ s["v"] + (1 if sign == "plus" else -1) * negative @ values
    return F.linear(mixed.transpose(1, 2).flatten(2), state["proj.weight"], state["proj.bias"])


def run(state: dict[str, torch.Tensor], pictures: torch.Tensor, sign: str) -> torch.Tensor:
    """Logits of the released ViT: positions on the patches alone, pre-norm blocks, class token read out."""

    def norm(x, name):
        return F.layer_norm(x, (DIM,), state[f"{name}.weight"], state[f"{name}.bias"], 1e-6)

    def linear(x, name):
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    x = F.conv2d(pictures, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=PATCH)
    x = x.flatten(2).transpose(1, 2) + state["pos_embed"]
    x = torch.cat((state["cls_token"].expand(len(x), -1, -1), x), dim=1)
    for block in range(DEPTH):
        prefix = f"blocks.{block}."
        layer = {name.removeprefix(f"{prefix}attn."): t for name, t in state.items() if name.startswith(f"{prefix}attn.")}
        x = x + attend(norm(x, f"{prefix}norm1"), layer, sign)
        x = x + linear(F.gelu(linear(norm(x, f"{prefix}norm2"), f"{prefix}mlp.fc1")), f"{prefix}mlp.fc2")
    return linear(norm(x, "norm")[:, 0], "head")


def save(folder: Path, state: dict[str, torch.Tensor], **beside) -> Path:
    torch.save({"model": state, **beside}, folder / "released.pth")
    return folder / "released.pth"


def pictures() -> torch.Tensor:
    return torch.randn(2, 3, SIDE, SIDE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("class_token_position", [False, True])
@pytest.mark.parametrize("sign", ["plus", "minus"])
@pytest.mark.parametrize("layout", ["qqkvv", "qqkv", "legacy", "legacy-shared"])
def test_every_layout_and_sign_computes_the_released_formula(tmp_path, layout, sign, class_token_position):
    state = released(layout)
    weights = read_weights(save(tmp_path, state), sign=sign)
    name = "dna" if layout in ("qqkvv", "legacy") else "dna-q"
    assert weights.attention.name == name
    model = build(name, class_token_position=class_token_position)
    report = load_into(model, weights, AttentionSpec(name))
    assert {fate for fate, _ in report.fates().values()} == {"loaded"}
    assert report.fates().keys() == model.state_dict().keys()
    expected = run(state, pictures(), sign)
    # float64 sums of some 200 terms in another order.
    assert (model(pictures()) - expected).abs().max() <= 1e-10
    assert (run(state, pictures(), "minus" if sign == "plus" else "plus") - expected).abs().max() > 0.1


def test_legacy_thirds_go_to_their_own_streams(tmp_path):
    # The released loader joins qkv, q_neg, v_neg in this order and reads q, q_neg, k, v, v_neg: three of five get another's rows.
    state = released("legacy")
    weights = read_weights(save(tmp_path, state))
    model = build()
    load_into(model, weights, AttentionSpec("dna"))
    q, k, v = state["blocks.1.attn.qkv.weight"].split(DIM)
    layer = model.blocks[1].attn
    for name, rows in {"q": q, "k": k, "v": v}.items():
        assert torch.equal(layer.get_submodule(name).weight, rows)
    for name in ("q_neg", "v_neg"):
        assert torch.equal(layer.get_submodule(name).weight, state[f"blocks.1.attn.{name}.weight"])


@pytest.mark.parametrize(("layout", "sign"), [("qqkvv", 1), ("legacy", 1), ("qqkv", -1), ("legacy-shared", -1)])
def test_the_sign_is_what_the_released_class_of_the_layout_does(tmp_path, layout, sign):
    state = released(layout)
    weights = read_weights(save(tmp_path, state))
    assert torch.equal(weights.tensors["blocks.0.attn.operator.alpha"], sign * state["blocks.0.attn.neg_scalers"])
    report = load_into(model := build(weights.attention.name), weights, model.attention)
    word = (
        "plus: the negative branch is added" if sign == 1 else "minus: the negative branch is subtracted, so the sign is flipped"
    )
    assert f"loaded: 2 x blocks.*.attn.operator.alpha ({word})" in report.lines()


def test_a_sign_that_says_nothing_is_refused(tmp_path):
    file = save(tmp_path, released("qqkvv"))
    with pytest.raises(UnknownName, match=r"unknown sign 'negative' \(--init_sign\)"):
        read_weights(file, sign="negative")
    torch.save(build().state_dict(), tmp_path / "own.pth")
    with pytest.raises(DnaError, match="has no neg_scalers, so it is no released DnA file: leave --init_sign out"):
        read_weights(tmp_path / "own.pth", sign="minus")


def test_rows_that_cannot_be_shared_out_are_told(tmp_path):
    state = released("qqkvv")
    state["blocks.0.attn.qqkvv.weight"] = state["blocks.0.attn.qqkvv.weight"][:-1]
    with pytest.raises(DnaError, match=r"blocks\.0\.attn\.qqkvv\.weight has 239 rows: no multiple of its 5 projections"):
        read_weights(save(tmp_path, state))


def test_tensors_are_taken_from_a_file_with_options_and_the_rest_is_named(tmp_path):
    state = released("qqkvv")
    beside = {
        "optimizer": {"state": {0: {"step": torch.ones(()), "exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 1e-3}]},
        "lr_scheduler": {"base_values": [1e-3], "t_initial": 300, "metric": None},
        "epoch": 299,
        "model_ema": None,
        "scaler": {"scale": 65536.0},
        "args": Namespace(
            batch_size=256, model="dna_vit_base_patch16_224", data_path="data", opt_betas=None, nested=Namespace(a=1)
        ),
    }
    file = save(tmp_path, state, **beside)
    with pytest.raises(DnaError, match=r"refused, it holds Python object argparse\.Namespace"):
        read_file(file)
    weights = read_weights(file)
    assert weights.left == tuple(beside)
    assert torch.equal(weights.tensors["head.weight"], state["head.weight"])
    assert load_into(build(), weights, AttentionSpec("dna")).lines()[-1] == f"left in the file: {', '.join(beside)}"
    # The permission ends with the reading.
    assert argparse.Namespace not in torch.serialization.get_safe_globals()


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_any_other_type_beside_the_tensors_is_refused_by_name(tmp_path, zipped):
    marker = tmp_path / "marker"

    class Run:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    content = {"model": released("qqkvv"), "args": Namespace(hook=Run())}
    torch.save(content, tmp_path / "released.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(DnaError, match=r"refused, it holds Python object \S*mkdir"):
        read_weights(tmp_path / "released.pth")
    assert not marker.exists()
    file = save(tmp_path, released("qqkvv"), args=Namespace(output=Path("a")))
    with pytest.raises(DnaError, match=r"refused, it holds Python object pathlib"):
        read_weights(file)


def test_a_namespace_with_a_foreign_value_is_refused_with_its_place(tmp_path):
    file = save(tmp_path, released("qqkvv"), args=Namespace(device=torch.device("cpu")))
    with pytest.raises(DnaError, match=r"refused, \['args'\]\['device'\] is a torch\.device"):
        read_weights(file)


def to_legacy(state: dict[str, torch.Tensor], model: torch.nn.Module) -> dict[str, torch.Tensor]:
    state = dict(state)
    for path in (path for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)):
        for kind in ("weight", "bias"):
            state[f"{path}.qkv.{kind}"] = torch.cat([state.pop(f"{path}.{stream}.{kind}") for stream in "qkv"])
        alpha = state.pop(f"{path}.operator.alpha")
        state[f"{path}.neg_scalers"] = alpha if f"{path}.v_neg.weight" in state else -alpha
    return state


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("dna", "fused"),
        ("dna-q", "fused"),
        ("softmax", "fused"),
        ("dna", "legacy"),
        ("dna-q", "legacy"),
        ("softmax", "timm"),
        ("dna", "safetensors"),
        ("cog", "safetensors"),
    ],
)
def test_ours_to_each_layout_and_back_is_bit_equal(tmp_path, name, layout):
    source, back = build(name), build(name, seed=1)
    file = tmp_path / ("w.safetensors" if layout == "safetensors" else "w.pth")
    match layout:
        case "fused":
            torch.save({"model": state_dict_for_released(source)}, file)
        case "legacy":
            torch.save({"model": to_legacy(source.state_dict(), source)}, file)
        case "timm":
            torch.save(state_dict_for_timm(source), file)
        case _:
            save_file(source.state_dict(), file)
    report = load_into(back, read_weights(file), back.attention)
    assert all(torch.equal(tensor, source.state_dict()[key]) for key, tensor in back.state_dict().items())
    assert {fate for fate, _ in report.fates().values()} == {"loaded"}


@pytest.mark.parametrize(("name", "sign"), [("dna", "plus"), ("dna-q", "minus")])
def test_what_is_written_for_the_released_code_computes_ours_under_its_formula(name, sign):
    # With a class row in the table, which the released code has no place for.
    source = build(name, class_token_position=True)
    state = state_dict_for_released(source)
    assert state["pos_embed"].shape == (1, 16, DIM)
    # float64 sums in another order.
    assert (run(state, pictures(), sign) - source(pictures())).abs().max() <= 1e-10


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [("dna-v", {}), ("differential", {}), ("dna", {"layers": "0"}), ("dna", {"pattern": "longformer"})],
)
def test_models_that_the_released_code_has_not_are_refused(name, kwargs):
    with pytest.raises(DnaError, match="the released code has layers for dna, dna-q and softmax"):
        state_dict_for_released(build(name, **kwargs))


def test_other_backbones_have_no_released_layout():
    model = build_image_model("deit_tiny_distilled", size="tiny", attention=AttentionSpec("dna"), num_classes=10, image_size=32)
    with pytest.raises(DnaError, match="VisionTransformerDistilled: the released code has plain vision transformers only"):
        state_dict_for_released(model)
