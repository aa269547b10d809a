"""Weights into models whose attention, head or picture size differ: what is adapted is told, what does not fit is refused."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer

import dna_suite.backbones
from dna_suite.backbones.images import build_image_model
from dna_suite.backbones.weights import load_into, load_model, read_weights
from dna_suite.catalogue import OPERATORS
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec

SHAPE = {"name": "vit_digits", "size": "tiny", "dim": 48, "depth": 2, "heads": 3, "patch": 8, "image_size": 32}
BACKBONE = {**SHAPE, "distilled": False, "class_token_position": True, "drop_path": 0.1}
NEGATIVE = {f"{stream}.{kind}" for stream in ("q_neg", "v_neg") for kind in ("weight", "bias")}


def build(name="softmax", seed=0, num_classes=10, image_size=32, layers="all", options=None, **kwargs):
    torch.manual_seed(seed)
    spec = AttentionSpec(name, layers=layers, options=options or {})
    return build_image_model("vit_digits", size="tiny", attention=spec, num_classes=num_classes, image_size=image_size, **kwargs)


def record(name="softmax", **changes):
    return {
        "version": 1,
        "task": "classification",
        "recipe": "digits",
        "attention": AttentionSpec(name).plain(),
        "backbone": BACKBONE,
        "classes": [str(digit) for digit in range(10)],
        "transform": {"resize": 32, "mean": [0.5, 0.5, 0.5]},
        **changes,
    }


def save_run(folder, model, name="softmax", checkpoint="best", **changes):
    path = folder / "checkpoints" / f"{checkpoint}.ckpt"
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {f"net.{key}": tensor for key, tensor in model.state_dict().items()}
    torch.save({"dna": record(name, **changes), "state_dict": {**state, "metric.count": torch.ones(1)}}, path)
    return folder


def fit(weights, model, **kwargs):
    return load_into(model, weights, model.attention, **kwargs)


def pictures(side=32):
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))


def equal_states(model, expected):
    return all(torch.equal(tensor, expected[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", OPERATORS)
def test_a_run_loads_in_eval_mode_with_its_classes_and_transform(tmp_path, name):
    model = build(name).eval()
    loaded = load_model(save_run(tmp_path, model, name))
    assert torch.equal(loaded(pictures()), model(pictures()))
    assert not loaded.training
    assert loaded.classes == list("0123456789")
    assert loaded.transform == {"resize": 32, "mean": [0.5, 0.5, 0.5]}
    assert loaded.attention == AttentionSpec(name)


def test_load_model_is_found_in_the_package_which_imports_no_torch_by_itself():
    assert dna_suite.backbones.load_model is load_model
    code = "import sys, dna_suite.backbones; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "checkpoint version 2; this release reads 1"),
        ({"attention": {"name": "dna", "class_path": "os.system"}}, "names no attention"),
        ({"attention": AttentionSpec("dnaa").plain()}, "unknown attention 'dnaa'"),
        ({"backbone": {"name": "vit_digits"}}, "describes no image model"),
        ({"classes": None}, "describes no image model"),
        ({"attention": AttentionSpec("dna").plain()}, r"missing: 2 x blocks\.\*\.attn\.q_neg\.weight, "),
    ],
)
def test_records_that_do_not_describe_the_weights_are_refused(tmp_path, changes, message):
    with pytest.raises(DnaError, match=message):
        load_model(save_run(tmp_path, build(), **changes))


def test_a_file_without_a_record_is_no_run(tmp_path):
    torch.save(build().state_dict(), tmp_path / "weights.pth")
    with pytest.raises(DnaError, match="does not say which model"):
        load_model(tmp_path / "weights.pth")


@pytest.mark.parametrize("nest", [None, "model", "state_dict", "module", "model_ema"])
@pytest.mark.parametrize("wrapper", ["", "module.", "_orig_mod."])
def test_timm_weights_load_from_every_usual_layout(tmp_path, nest, wrapper):
    torch.manual_seed(4)
    original = VisionTransformer(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=3, num_classes=10)
    state = {f"{wrapper}{key}": tensor for key, tensor in original.state_dict().items()}
    torch.save(state if nest is None else {nest: state, "epoch": 3}, tmp_path / "vit.pth")
    weights, model = read_weights(tmp_path / "vit.pth"), build()
    assert weights.attention == AttentionSpec("softmax")
    report = fit(weights, model)
    assert report.changes == ()
    assert report.copied == tuple(model.state_dict())
    assert report.left == (() if nest is None else ("epoch",))
    # Separate float32 products instead of a packed one.
    assert (model.eval()(pictures()) - original.eval()(pictures())).abs().max() <= 1e-6


def test_safetensors_load(tmp_path):
    source, model = build("dna"), build("dna", seed=1)
    save_file(source.state_dict(), tmp_path / "dna.safetensors")
    weights = read_weights(tmp_path / "dna.safetensors")
    assert weights.attention.name == "dna"
    assert fit(weights, model).changes == ()
    assert equal_states(model, source.state_dict())


@pytest.mark.parametrize("name", OPERATORS)
def test_the_attention_of_a_foreign_file_is_told_from_its_streams(tmp_path, name):
    torch.save(build(name).state_dict(), tmp_path / "weights.pth")
    guessed = read_weights(tmp_path / "weights.pth").attention.name
    # Without a parameter or width of its own an operator looks like softmax.
    assert guessed == ("softmax" if name in ("dna-shared-plain", "cog") else name)


def test_softmax_weights_in_dna_report_exactly_the_negative_branch(tmp_path):
    source, model = build(), build("dna", seed=1)
    report = fit(read_weights(save_run(tmp_path, source)), model)
    added = {f"blocks.{layer}.attn.{name}" for layer in range(2) for name in (*NEGATIVE, "operator.alpha")}
    assert {change.tensor for change in report.changes} == added
    state = model.state_dict()
    assert all(torch.equal(state[key], tensor) for key, tensor in source.state_dict().items())
    assert torch.equal(state["blocks.1.attn.v_neg.weight"], 1e-4 * state["blocks.1.attn.v.weight"])
    lines = report.lines()
    counts = f"tensors {len(source.state_dict())} loaded, 0 resized, 10 initialised, 0 unused"
    assert lines[0].endswith(f": {counts}; attention softmax -> dna")
    assert lines[1].startswith("loaded: cls_token, pos_embed, patch_embed.proj.weight")
    assert "initialised: 2 x blocks.*.attn.q_neg.weight (warm start, 0.0001 x blocks.*.attn.q.weight)" in lines
    assert lines[6] == "initialised: 2 x blocks.*.attn.operator.alpha (start value, the operator's own)"
    plain = report.plain()["tensors"]
    assert plain.keys() == model.state_dict().keys()
    assert plain["norm.weight"] == {"fate": "loaded", "how": []}
    assert plain["blocks.1.attn.v_neg.bias"] == {"fate": "initialised", "how": ["warm start: 0.0001 x blocks.1.attn.v.bias"]}


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("dna", "dna-q", ["v_neg"]),
        ("dna", "dna-v", ["q_neg"]),
        ("dna", "softmax", ["q_neg", "v_neg"]),
        ("dna", "dna-shared-plain", ["q_neg", "v_neg"]),
        ("dna-q", "dna-v", ["q_neg"]),
        ("dna-shared", "softmax", ["alpha"]),
    ],
)
def test_losing_a_branch_is_an_error_unless_it_is_named(tmp_path, old, new, lost):
    weights, model = read_weights(save_run(tmp_path, build(old), old)), build(new, seed=1)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    for drop in [[], lost[:-1]]:
        refused = [name for name in lost if name not in drop]
        flags = " ".join(f"--init_drop {name}" for name in refused)
        with pytest.raises(DnaError, match=f"attention {old} -> {new} loses {', '.join(refused)}; to accept that: {flags}"):
            fit(weights, model, drop=drop)
        assert equal_states(model, before)
    report = fit(weights, model, drop=lost)
    dropped = {change.tensor for change in report.changes if change.action == "dropped"}
    assert dropped == set(weights.tensors) - set(before)
    assert torch.equal(model.blocks[0].attn.k.weight, weights.tensors["blocks.0.attn.k.weight"])


def test_dna_weights_for_fewer_layers_lose_the_others(tmp_path):
    weights = read_weights(save_run(tmp_path, build("dna"), "dna"))
    with pytest.raises(DnaError, match="loses q_neg, v_neg"):
        fit(weights, build("dna", layers="1"))
    report = fit(weights, build("dna", layers="1"), drop=["q_neg", "v_neg"])
    assert {change.tensor.split(".")[1] for change in report.changes} == {"0"}


def test_a_stream_to_drop_must_exist(tmp_path):
    with pytest.raises(UnknownName, match=r"unknown stream to drop 'vneg' \(--init_drop\); did you mean 'v_neg'"):
        fit(read_weights(save_run(tmp_path, build())), build(), drop=["vneg"])


def test_a_head_of_another_class_count_is_kept_and_told_in_one_line(tmp_path):
    source, model = build(), build(seed=1, num_classes=196)
    head = model.head.weight.clone()
    report = fit(read_weights(save_run(tmp_path, source)), model)
    assert report.lines()[2:] == ["initialised: head.weight, head.bias (10 classes in the weights, 196 classes here)"]
    assert report.reinitialised == ("head.weight", "head.bias")
    assert torch.equal(model.head.weight, head)
    assert torch.equal(model.norm.weight, source.norm.weight)


def test_a_renamed_tensor_is_told_as_missing_and_unexpected(tmp_path):
    state = build().state_dict()
    state["blocks.0.norm_1.weight"] = state.pop("blocks.0.norm1.weight")
    torch.save(state, tmp_path / "weights.pth")
    model = build(seed=1)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(DnaError, match=r"missing: blocks\.0\.norm1\.weight; unexpected: blocks\.0\.norm_1\.weight; to acc"):
        fit(read_weights(tmp_path / "weights.pth"), model)
    assert equal_states(model, before)


def test_what_is_allowed_by_name_may_differ_and_nothing_else(tmp_path):
    state = build().state_dict()
    state["blocks.0.norm_1.weight"] = state.pop("blocks.0.norm1.weight")
    state["blocks.1.mlp.fc1.bias"] = torch.zeros(7)
    state["extra.weight"] = torch.zeros(1)
    torch.save(state, tmp_path / "weights.pth")
    weights, model = read_weights(tmp_path / "weights.pth"), build(seed=1)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(DnaError) as caught:
        fit(weights, model)
    flags = [name for name in str(caught.value).split("to accept that: ")[1].split() if name != "--init_allow"]
    assert flags == ["blocks.*.norm1.weight", "blocks.*.norm_1.weight", "extra.weight", "blocks.*.mlp.fc1.bias"]
    for left_out in flags:
        with pytest.raises(DnaError, match="do not fit"):
            fit(weights, model, allow=[flag for flag in flags if flag != left_out])
    assert equal_states(model, before)
    with pytest.raises(UnknownName, match=r"unknown tensor to allow 'extr' \(--init_allow\)"):
        fit(weights, model, allow=[*flags, "extr"])
    report = fit(weights, model, allow=["blocks.0.norm1", "blocks.0.norm_1.weight", "extra", "blocks.*.mlp.fc1.bias"])
    fates = {name: fate for name, (fate, _) in report.fates().items() if fate != "loaded"}
    assert fates == {
        "blocks.0.norm1.weight": "initialised",
        "blocks.0.norm_1.weight": "unused",
        "blocks.1.mlp.fc1.bias": "initialised",
        "extra.weight": "unused",
    }
    assert torch.equal(model.blocks[0].norm1.weight, before["blocks.0.norm1.weight"])
    assert torch.equal(model.blocks[0].mlp.fc1.bias, state["blocks.0.mlp.fc1.bias"])


def test_weights_of_quite_another_model_are_told_in_one_line_of_bearable_length(tmp_path):
    torch.save({f"layer{number}.conv.weight": torch.zeros(3) for number in range(400)}, tmp_path / "weights.pth")
    with pytest.raises(DnaError, match=r"and \d+ more; to accept that: --init_allow NAME, each$") as caught:
        fit(read_weights(tmp_path / "weights.pth"), build())
    assert len(str(caught.value)) < 1500


def test_a_dna_file_that_lacks_a_stream_is_refused_not_warm_started(tmp_path):
    model = build("dna")
    state = {key: tensor for key, tensor in model.state_dict().items() if key != "blocks.1.attn.q_neg.weight"}
    torch.save(state, tmp_path / "weights.pth")
    with pytest.raises(DnaError, match=r"missing: blocks\.1\.attn\.q_neg\.weight; to accept"):
        fit(read_weights(tmp_path / "weights.pth"), model)


def test_another_width_is_told_with_both_shapes(tmp_path):
    torch.save(build(dim=24).state_dict(), tmp_path / "weights.pth")
    with pytest.raises(DnaError, match=r"of another shape: cls_token \[1, 1, 24\] for \[1, 1, 48\]"):
        fit(read_weights(tmp_path / "weights.pth"), build())


@pytest.mark.parametrize("class_token_position", [True, False])
def test_a_position_table_follows_the_picture_size(tmp_path, class_token_position):
    source = build(class_token_position=class_token_position)
    ramp = torch.linspace(0, 1, 4).repeat(4, 1).reshape(1, 16, 1).expand(1, 16, 48)
    prefix = int(class_token_position)
    with torch.no_grad():
        source.pos_embed[:, prefix:] = ramp
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    model = build(seed=1, image_size=64, class_token_position=class_token_position)
    report = fit(read_weights(tmp_path / "weights.pth"), model)
    assert report.lines()[2:] == ["resized: pos_embed (4 x 4 -> 8 x 8 patches, bicubic)"]
    assert torch.equal(model.pos_embed[:, :prefix], source.pos_embed[:, :prefix])
    grid = model.pos_embed[0, prefix:, 0].reshape(8, 8)
    # Bicubic weights are float32 and sum to 1: every row is the same rising ramp, and its middle is the ramp's.
    assert (grid - grid[0]).abs().max() <= 1e-6
    assert grid[0].diff().gt(0).all()
    assert (grid[0] + grid[0].flip(0) - 1).abs().max() <= 1e-6
    assert model(pictures(64)).shape == (2, 10)


def test_a_table_without_the_class_token_gets_a_zero_row_and_loses_it_again_without_a_change_of_function(tmp_path):
    source = build(class_token_position=False).eval()
    torch.save(source.state_dict(), tmp_path / "without.pth")
    model = build(seed=1).eval()
    report = fit(read_weights(tmp_path / "without.pth"), model)
    assert report.lines()[2:] == ["loaded: pos_embed (a row of zeros for the class token put before it)"]
    assert torch.equal(model.pos_embed, torch.cat((torch.zeros(1, 1, 48), source.pos_embed), dim=1))
    assert torch.equal(model(pictures()), source(pictures()))
    with torch.no_grad():
        model.pos_embed[:, 0] = torch.randn(48)
    torch.save(model.state_dict(), tmp_path / "with.pth")
    report = fit(read_weights(tmp_path / "with.pth"), back := build(seed=2, class_token_position=False).eval())
    assert "loaded: cls_token (the class row of pos_embed added to it)" in report.lines()
    assert torch.equal(back.cls_token, model.cls_token + model.pos_embed[:, :1])
    assert torch.equal(back(pictures()), model(pictures()))


def test_a_new_grid_and_a_new_class_row_come_together(tmp_path):
    source = build(class_token_position=False)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    wide, same = build(image_size=64), build(image_size=64, class_token_position=False)
    report = fit(read_weights(tmp_path / "weights.pth"), wide)
    fit(read_weights(tmp_path / "weights.pth"), same)
    assert report.fates()["pos_embed"][0] == "resized"
    assert torch.equal(wide.pos_embed[:, 1:], same.pos_embed)
    assert not wide.pos_embed[:, 0].any()


def test_distilled_weights_and_plain_ones_trade_places_where_that_is_allowed(tmp_path):
    distilled, plain = build_other("deit_tiny_distilled"), build_other("vit_tiny")
    torch.save({"model": distilled.state_dict()}, tmp_path / "deit.pth")
    torch.save({"model": plain.state_dict()}, tmp_path / "vit.pth")
    back = build_other("deit_tiny_distilled", seed=1)
    assert fit(read_weights(tmp_path / "deit.pth"), back).changes == ()
    assert equal_states(back, distilled.state_dict())
    with pytest.raises(
        DnaError, match=r"unexpected: dist_token, head_dist\.weight, head_dist\.bias; to accept that: --init_allow d"
    ):
        fit(read_weights(tmp_path / "deit.pth"), build_other("vit_tiny", seed=1))
    report = fit(read_weights(tmp_path / "deit.pth"), there := build_other("vit_tiny", seed=1), allow=["dist_token", "head_dist"])
    assert torch.equal(there.pos_embed, distilled.pos_embed[:, [0, *range(2, 6)]])
    assert {name for name, (fate, _) in report.fates().items() if fate == "unused"} == {
        "dist_token",
        "head_dist.weight",
        "head_dist.bias",
    }
    model = build_other("deit_tiny_distilled", seed=1)
    own = model.pos_embed.detach().clone()
    report = fit(read_weights(tmp_path / "vit.pth"), model, allow=["dist_token"])
    assert torch.equal(model.pos_embed, torch.cat((plain.pos_embed[:, :1], own[:, 1:2], plain.pos_embed[:, 1:]), dim=1))
    assert report.reinitialised == ("head_dist.weight", "head_dist.bias", "dist_token")


def test_a_table_that_is_no_square_is_told(tmp_path):
    state = build().state_dict()
    state["pos_embed"] = torch.zeros(1, 24, 48)
    torch.save(state, tmp_path / "weights.pth")
    with pytest.raises(DnaError, match="a position table of 24 rows is no square grid with 0 to 2 rows before it"):
        fit(read_weights(tmp_path / "weights.pth"), build())


def test_other_options_of_the_same_attention_are_told_as_options(tmp_path):
    for plain in (True, False):
        source = build("differential", options={"plain": plain})
        torch.save(source.state_dict(), tmp_path / "weights.pth")
        run = save_run(tmp_path / str(plain), source, attention=AttentionSpec("differential", options={"plain": plain}).plain())
        for path in (tmp_path / "weights.pth", run):
            model = build("differential", seed=1, options={"plain": not plain})
            theirs, ours = str(plain).lower(), str(not plain).lower()
            told = (
                f"differential (plain={theirs}) -> differential (plain={ours}) loses lambda; to accept that: --init_drop lambda"
            )
            with pytest.raises(DnaError) as caught:
                fit(read_weights(path), model)
            assert str(caught.value).endswith(f": attention {told}; to keep it: --model.attention.options.plain={theirs}")
            report = fit(read_weights(path), model, drop=["lambda"])
            assert {name.rpartition(".")[0] for name, (fate, _) in report.fates().items() if fate == "initialised"} >= {
                "blocks.0.attn.operator"
            }


def test_the_names_of_wrappers_are_taken_off_wherever_they_stand(tmp_path):
    source, model = build(), build(seed=1)
    state = {f"module.{key.replace('attn.', '_orig_mod.attn.')}": tensor for key, tensor in source.state_dict().items()}
    torch.save(state, tmp_path / "weights.pth")
    assert fit(read_weights(tmp_path / "weights.pth"), model).changes == ()
    assert equal_states(model, source.state_dict())
    torch.save({**source.state_dict(), "_orig_mod.norm.weight": torch.ones(48)}, tmp_path / "twice.pth")
    with pytest.raises(DnaError, match="holds tensors twice"):
        read_weights(tmp_path / "twice.pth")


def test_an_export_s_record_is_read_and_a_wrong_one_is_refused(tmp_path):
    source = build("cog")
    file = tmp_path / "cog.safetensors"
    save_file(source.state_dict(), file, metadata={"dna": json.dumps(record("cog"))})
    model = load_model(file)
    assert model.attention == AttentionSpec("cog")
    assert model.classes == list("0123456789")
    for text, message in [
        ("{", "the record of this export is no JSON"),
        (json.dumps(record("cog", version=2)), "checkpoint version 2"),
        (json.dumps(record("cog", attention={"class_path": "os.system"})), "names no attention"),
    ]:
        save_file(source.state_dict(), file, metadata={"dna": text})
        with pytest.raises(DnaError, match=message):
            load_model(file)


def test_a_folder_of_timm_brings_its_normalisation_and_classes(tmp_path):
    save_file(build().state_dict(), tmp_path / "model.safetensors")
    config = {"label_names": ["a", "b"], "pretrained_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = read_weights(tmp_path)
    assert weights.normalisation == {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}
    assert weights.classes == ["a", "b"]
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(DnaError, match=r"config\.json: cannot be read as JSON"):
        read_weights(tmp_path)


@pytest.mark.parametrize("content", [[torch.ones(1)], {}, {"model": {"w": "text"}}, {"state_dict": {}}])
def test_files_that_hold_no_state_dict_are_told(tmp_path, content):
    torch.save(content, tmp_path / "weights.pth")
    with pytest.raises(DnaError, match="no state dict"):
        read_weights(tmp_path / "weights.pth")


def test_half_precision_weights_become_the_models_type(tmp_path):
    source = build()
    torch.save({key: tensor.half() for key, tensor in source.state_dict().items()}, tmp_path / "weights.pth")
    model = build("dna", seed=1)
    fit(read_weights(tmp_path / "weights.pth"), model)
    assert model.norm.weight.dtype == torch.float32
    # 1e-4 of half-precision weights must not vanish: numbers below 6e-8 are zero in that type.
    assert torch.equal(model.blocks[0].attn.v_neg.weight, 1e-4 * source.blocks[0].attn.v.weight.half().float())


def build_other(backbone, name="softmax", seed=0, image_size=32):
    torch.manual_seed(seed)
    return build_image_model(backbone, size="tiny", attention=AttentionSpec(name), num_classes=10, image_size=image_size)


@pytest.mark.parametrize(
    ("backbone", "shape"),
    [
        ("swin_tiny", {"dim": 24, "depths": [2, 1], "heads": 3, "patch": 8, "window": 7}),
        ("convit_base", {"dim": 48, "depth": 2, "heads": 4, "patch": 16, "local": 1}),
    ],
)
def test_models_of_windows_and_gates_come_back_from_their_runs(tmp_path, backbone, shape):
    source = build_other(backbone, "dna")
    described = {"name": backbone, "size": "tiny", **shape, "image_size": 32, "class_token_position": True, "drop_path": 0.0}
    model = load_model(save_run(tmp_path, source, "dna", backbone=described))
    assert equal_states(model, source.state_dict())
    assert torch.equal(model(pictures()), source.eval()(pictures()))


@pytest.mark.parametrize("backbone", ["swin_tiny", "convit_tiny"])
def test_softmax_weights_of_windows_and_gates_in_dna_report_the_negative_branch(tmp_path, backbone):
    source, model = build_other(backbone), build_other(backbone, "dna", seed=1)
    report = fit(read_weights(save_run(tmp_path, source)), model)
    assert {change.tensor for change in report.changes} == model.state_dict().keys() - source.state_dict().keys()
    state = model.state_dict()
    assert all(torch.equal(state[key], tensor) for key, tensor in source.state_dict().items())


def test_a_table_of_another_window_is_resized_as_timm_does(tmp_path):
    source, model = build_other("swin_tiny"), build_other("swin_tiny", seed=1, image_size=48)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    report = fit(read_weights(tmp_path / "weights.pth"), model)
    assert [(change.action, change.detail) for change in report.changes] == [
        ("resized", "windows of 4 x 4 -> 6 x 6"),
        ("resized", "windows of 4 x 4 -> 6 x 6"),
        ("resized", "windows of 2 x 2 -> 3 x 3"),
    ]
    source.set_input_size(img_size=48, window_size=7)
    assert equal_states(model, source.state_dict())


def test_convit_s_position_table_has_no_row_for_its_class_token(tmp_path):
    source, model = build_other("convit_tiny", image_size=64), build_other("convit_tiny", seed=1)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    report = fit(read_weights(tmp_path / "weights.pth"), model)
    assert [(change.tensor, change.detail) for change in report.changes] == [("pos_embed", "4 x 4 -> 2 x 2 patches, bicubic")]
    assert model.pos_embed.shape == (1, 4, 48)


def test_a_swin_head_of_another_class_count_keeps_its_start(tmp_path):
    source, model = build_other("swin_tiny"), build_other("swin_tiny", seed=1)
    model.reset_classifier(4)
    start = model.head.fc.weight.clone()
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    assert fit(read_weights(tmp_path / "weights.pth"), model).reinitialised == ("head.fc.weight", "head.fc.bias")
    assert torch.equal(model.head.fc.weight, start)


def test_differential_weights_lose_their_lambda_by_name(tmp_path):
    source, model = build("differential"), build(seed=1)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    weights = read_weights(tmp_path / "weights.pth")
    with pytest.raises(DnaError, match="differential -> softmax loses lambda; to accept that: --init_drop lambda"):
        fit(weights, model)
    report = fit(weights, model, drop=["lambda"])
    assert {change.tensor.rpartition("operator.")[2] for change in report.changes} == {
        *(f"lambda_{end}" for end in ("q1", "k1", "q2", "k2")),
        "sub_norm.weight",
    }
