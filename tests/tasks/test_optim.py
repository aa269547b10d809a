"""Optimiser groups, learning rates, layer decay, and that decay reaches what the rule says."""

import csv
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from dna_suite.backbones.images import build_image_model
from dna_suite.cli.main import main
from dna_suite.cli.recipe import Recipe, read_recipe
from dna_suite.data.order import EpochBatches
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec, OptimSpec, ScheduleSpec
from dna_suite.tasks.optim import build_optimizer, build_schedule, group_parameters, layer_numbers, rate_at, scaled_lr

PAPER = ScheduleSpec(warmup_epochs=5, warmup_lr=1e-6, min_lr=1e-5)
HOSTS = ("vit_base", "deit_base_distilled", "swin_base", "convit_base")


def model(backbone: str = "vit_digits", size: str = "tiny", side: int = 32) -> nn.Module:
    return build_image_model(backbone, size=size, attention=AttentionSpec("dna"), num_classes=10, image_size=side)


@pytest.mark.parametrize("layer_decay", [1.0, 0.75])
@pytest.mark.parametrize("decay", ["matrices", "all"])
@pytest.mark.parametrize("backbone", HOSTS)
def test_every_parameter_is_in_exactly_one_group(backbone: str, decay: str, layer_decay: float) -> None:
    net = model(backbone)
    names = [name for group in group_parameters(net, OptimSpec(decay=decay, layer_decay=layer_decay)) for name in group.names]
    assert sorted(names) == sorted(name for name, _ in net.named_parameters())


def test_only_matrices_decay() -> None:
    groups = {group.name: group for group in group_parameters(model(), OptimSpec(weight_decay=0.075))}
    assert (groups["decay"].weight_decay, groups["no_decay"].weight_decay) == (0.075, 0)
    kinds = {name.rsplit(".", 1)[-1] for name in groups["no_decay"].names}
    assert kinds == {"bias", "weight", "alpha", "pos_embed", "cls_token"}
    assert all("norm" in name for name in groups["no_decay"].names if name.endswith("weight"))
    assert {name.split(".")[-2] for name in groups["decay"].names} == {
        "q",
        "q_neg",
        "k",
        "v",
        "v_neg",
        "proj",
        "fc1",
        "fc2",
        "head",
    }


def test_frozen_parameters_are_left_out() -> None:
    net = model()
    net.head.requires_grad_(False)
    assert not any("head" in name for group in group_parameters(net, OptimSpec()) for name in group.names)


@pytest.mark.parametrize("decay", ["matrices", "all"])
def test_what_moves_without_a_gradient_is_what_decays(decay: str) -> None:
    net = model()
    nn.init.ones_(net.cls_token)
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    optimizer = build_optimizer(net, OptimSpec(weight_decay=0.075, decay=decay), lr=0.1)
    for _ in range(10):
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    now = dict(net.named_parameters())
    for name in ("blocks.0.attn.operator.alpha", "pos_embed", "cls_token", "blocks.0.norm1.weight", "blocks.0.attn.q.weight"):
        pulled = decay == "all" or name == "blocks.0.attn.q.weight"
        # Ten float32 products: a few units of 1e-7.
        expected = before[name] * (1 - 0.1 * 0.075) ** 10 if pulled else before[name]
        torch.testing.assert_close(now[name].detach(), expected, rtol=2e-6, atol=0)


def layer_by_name(name: str, depths: tuple[int, ...]) -> int:
    """The layer of a parameter, told from its name alone."""
    total = sum(depths)
    if found := re.match(r"layers\.(\d+)\.(blocks\.(\d+)|downsample)", name):
        return 1 + sum(depths[: int(found[1])]) + int(found[3] or 0)
    if found := re.match(r"blocks\.(\d+)", name):
        return 1 + int(found[1])
    return total + 1 if name.startswith("head") else total if name.startswith("norm") else 0


@pytest.mark.parametrize(("backbone", "depths"), [*((name, (2,)) for name in HOSTS if "swin" not in name), ("swin_base", (2, 1))])
def test_a_step_moves_each_layer_by_its_own_rate(backbone: str, depths: tuple[int, ...]) -> None:
    # huggingface/pytorch-image-models#2532: factors that only one library's scheduler reads do nothing elsewhere.
    net = model(backbone)
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    optim = OptimSpec(layer_decay=0.5, weight_decay=0.0, eps=0.0)
    optimizer = build_optimizer(net, optim, lr=1e-2)
    schedule = ScheduleSpec(warmup_epochs=1, warmup_lr=5e-3, min_lr=0.0)
    build_schedule(optimizer, peak=1e-2, schedule=schedule, steps_per_epoch=4, epochs=3)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    last = sum(depths) + 1
    for name, parameter in net.named_parameters():
        # AdamW's first step is the rate times the gradient's sign, here half the peak; float32 differences of numbers near 1.
        expected = 5e-3 * 0.5 ** (last - layer_by_name(name, depths))
        moved = (before[name] - parameter.detach()).mean().item()
        assert moved == pytest.approx(expected, rel=1e-3, abs=1e-7), name


@pytest.mark.parametrize(
    ("backbone", "depths"), [(name, (2, 2, 18, 2) if "swin" in name else (12,)) for name in HOSTS], ids=HOSTS
)
def test_layers_of_the_published_models(backbone: str, depths: tuple[int, ...]) -> None:
    with torch.device("meta"):
        net = model(backbone, "paper", 224)
    numbers = layer_numbers(net)
    assert numbers == {name: layer_by_name(name, depths) for name, _ in net.named_parameters()}
    groups = group_parameters(net, OptimSpec(layer_decay=0.75))
    scales = {name: group.scale for group in groups for name in group.names}
    assert {name: scale for name, scale in scales.items() if name.startswith("head")} == dict.fromkeys(
        [name for name in scales if name.startswith("head")], 1.0
    )
    if backbone == "vit_base":
        assert scales["blocks.11.attn.q.weight"] == 0.75
        assert scales["blocks.0.attn.operator.alpha"] == pytest.approx(0.0317, abs=5e-5)
        assert {scales[name] for name in ("patch_embed.proj.weight", "pos_embed", "cls_token")} == {0.75**13}
    # The log shows the first group's rate, which is the run's.
    assert groups[0].scale == 1.0


def test_layer_decay_needs_a_network_with_layers() -> None:
    with pytest.raises(DnaError, match=r"model\.optim\.layer_decay: Linear has no order of layers; 1 is off"):
        group_parameters(nn.Linear(2, 2), OptimSpec(layer_decay=0.75))


def schedule_of(recipe: Recipe) -> tuple[float, ScheduleSpec]:
    """The peak rate and the schedule of a recipe of ImageNet at its global batch."""
    values, data, trainer = (recipe.values[section] for section in ("model", "data", "trainer"))
    batch = data["batch"] * trainer["accumulate_grad_batches"]
    assert batch == data["global_batch"] == 1024
    return scaled_lr(OptimSpec(**values["optim"]), batch), ScheduleSpec(**values["schedule"])


# 1,281,167 pictures in steps of 1024.
IMAGENET_STEPS = EpochBatches(1_281_167, 256, accumulate=4).steps_per_epoch


def rates_at(files: list[str], steps: list[int], epochs: int) -> list[float]:
    """Rates of single optimiser steps that recipe files give."""
    recipe = read_recipe([f"--config={file}" for file in files])
    assert recipe.values["trainer"]["max_epochs"] == epochs
    peak, schedule = schedule_of(recipe)
    return [rate_at(step, peak=peak, schedule=schedule, steps_per_epoch=IMAGENET_STEPS, epochs=epochs) for step in steps]


def test_the_rates_of_the_released_code() -> None:
    # Recorded from the released training script at batch 1024: the rate of epochs 0 to 6 and 297 to 299, with four digits.
    golden = {0: 1.000e-6, 1: 1.000e-6, 2: 2.008e-4, 3: 4.006e-4, 4: 6.004e-4, 5: 8.002e-4, 6: 9.993e-4}
    golden |= {297: 1.043e-5, 298: 1.024e-5, 299: 1.011e-5}
    files = ["tasks/imagenet_vit.yaml", "configs/released_code.yaml"]
    assert IMAGENET_STEPS == 1252
    for place in (0, IMAGENET_STEPS // 2, IMAGENET_STEPS - 1):
        found = rates_at(files, [epoch * IMAGENET_STEPS + place for epoch in golden], 300)
        assert found == pytest.approx(list(golden.values()), rel=5e-4)


@pytest.mark.parametrize("recipe", ["imagenet_vit", "imagenet_swin", "imagenet_convit"])
def test_the_rates_of_the_paper(recipe: str) -> None:
    # Warm-up 1e-6 -> 1e-3 over 5 epochs, then a cosine to 1e-5 at 300, by hand for single steps.
    golden = {0: 1e-6, 1: 1.159585e-6, 626: 1.009e-4, 1252: 2.008e-4, 2504: 4.006e-4, 3756: 6.004e-4, 5008: 8.002e-4}
    golden |= {6259: 9.998404e-4, 6260: 1e-3, 7512: 9.999719e-4, 125_200: 7.675583e-4, 190_930: 5.05e-4, 250_400: 2.651473e-4}
    golden |= {374_348: 1.002807e-5, 375_599: 1e-5}
    found = rates_at([f"tasks/{recipe}.yaml"], list(golden), 300)
    assert found == pytest.approx(list(golden.values()), rel=1e-6)


def test_the_rates_of_fibottention() -> None:
    files = ["tasks/imagenet_vit.yaml", "configs/fibottention.yaml"]
    # 1e-3 per 256 pictures, from 0 over 5 epochs, half a cosine period to 1e-6 over the other 95; epoch 52.5 is its middle.
    golden = {0: 0.0, 626: 4e-4, 6260: 4e-3, 65_730: (4e-3 + 1e-6) / 2}
    assert rates_at(files, list(golden), 100) == pytest.approx(list(golden.values()), rel=1e-9)


def test_per_step_and_per_epoch_rates_agree_at_epoch_starts() -> None:
    coarse = ScheduleSpec(warmup_epochs=5, warmup_lr=1e-6, min_lr=1e-5, every="epoch")
    options = {"peak": 1e-3, "steps_per_epoch": 4, "epochs": 300}
    for epoch in range(300):
        fine = rate_at(4 * epoch, schedule=PAPER, **options)
        assert [rate_at(4 * epoch + step, schedule=coarse, **options) for step in range(4)] == [fine] * 4


def test_the_list_of_rates_does_not_depend_on_accumulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Lightning-AI/pytorch-lightning#12894: schedules that count micro-batches run accumulate times too fast.
    monkeypatch.chdir(tmp_path)
    words = ["fit", "--config=tasks/digits.yaml", "--config=configs/smoke.yaml", "--data.subset=64", "--data.global_batch=16"]
    words += ["--trainer.limit_train_batches=1.0", "--trainer.limit_val_batches=0", "--model.schedule.warmup_epochs=1"]
    lists = []
    for batch, accumulate in ((16, 1), (8, 2), (4, 4)):
        split = [f"--data.batch={batch}", f"--trainer.accumulate_grad_batches={accumulate}", f"--runs=runs{accumulate}"]
        assert main([*words, *split, "--trainer.max_epochs=3"]) == 0
        lists.append(logged_rates(next(Path(f"runs{accumulate}").rglob("metrics.csv"))))
    options = {"peak": 1e-3, "schedule": ScheduleSpec(warmup_epochs=1, warmup_lr=1e-5, min_lr=1e-5), "epochs": 3}
    assert lists[0] == [rate_at(step, steps_per_epoch=4, **options) for step in range(12)]
    assert lists[1] == lists[0]
    assert lists[2] == lists[0]


def logged_rates(file: Path) -> list[float]:
    """The learning rate of every optimiser step of a run that logs each."""
    with file.open() as rows:
        return [float(row["train/lr"]) for row in csv.DictReader(rows)]


def test_the_released_recipe_trains_with_the_rate_of_the_epoch_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = ["tasks/imagenet_vit.yaml", "configs/released_code.yaml", "configs/smoke.yaml"]
    words = ["--trainer.max_epochs=4", "--model.schedule.warmup_epochs=2", "--trainer.limit_val_batches=0"]
    assert main(["fit", *(f"--config={file}" for file in files), *words, "--trainer.limit_train_batches=2"]) == 0
    peak = 5e-4 * 8 / 512
    warm, top = 1e-6 + (peak - 1e-6) / 2, 1e-5 + (peak - 1e-5) / 2
    # Epoch 3 is the cosine's epoch 2 of 4: half its way.
    expected = [1e-6, 1e-6, 1e-6, 1e-6, warm, warm, top, top]
    assert logged_rates(next(Path("runs").rglob("metrics.csv"))) == pytest.approx(expected, rel=1e-12)


def test_a_run_without_warm_up_starts_at_the_peak() -> None:
    schedule = ScheduleSpec(warmup_epochs=0, min_lr=0.0)
    assert rate_at(0, peak=0.3, schedule=schedule, steps_per_epoch=2, epochs=2) == 0.3
    assert rate_at(4, peak=0.3, schedule=schedule, steps_per_epoch=2, epochs=2) == 0.0
    assert rate_at(99, peak=0.3, schedule=ScheduleSpec(name="constant"), steps_per_epoch=2, epochs=2) == 0.3


@pytest.mark.parametrize(("rule", "lr"), [("none", 1e-3), ("linear", 2.5e-4), ("sqrt", 5e-4)])
def test_the_rate_belongs_to_its_batch(rule: str, lr: float) -> None:
    assert scaled_lr(OptimSpec(lr=1e-3, lr_batch=1024, lr_scaling=rule), 256) == pytest.approx(lr, rel=1e-12)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(DnaError, match="adamw or sgd"):
        build_optimizer(nn.Linear(2, 2), OptimSpec(name="lion"), 0.1)
    with pytest.raises(DnaError, match="none, linear or sqrt"):
        scaled_lr(OptimSpec(lr_scaling="cubic"), 4)


def test_sgd_without_momentum_is_plain() -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    layer.weight.grad = torch.full((1, 1), 2.0)
    build_optimizer(layer, OptimSpec(name="sgd", beta1=0.0, weight_decay=0.0), 0.25).step()
    assert layer.weight.item() == 0.5


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("optim.lr=-1", "model.optim.lr -1.0: a number above 0 (command line)"),
        ("optim.lr=.nan", "model.optim.lr nan: a number above 0 (command line)"),
        ("optim.lr_batch=0", "model.optim.lr_batch 0: a number above 0 (command line)"),
        ("optim.beta2=1", "model.optim.beta2 1.0: from 0 up to, not including, 1 (command line)"),
        ("optim.layer_decay=1.5", "model.optim.layer_decay 1.5: above 0, at most 1, which is off (command line)"),
        ("optim.decay=some", "model.optim.decay: one of 'matrices', 'all', not some (command line)"),
        ("schedule.lag=-1", "model.schedule.lag -1: a number from 0 (command line)"),
        ("schedule.lag=0.5", "model.schedule.lag: a whole number, not 0.5 (command line)"),
        ("schedule.every=batch", "model.schedule.every: one of 'step', 'epoch', not batch (command line)"),
        ("schedule.cosine_from=top", "model.schedule.cosine_from: one of 'warmup', 'start', not top (command line)"),
        ("drop_path_shape=flat", "model.drop_path_shape: one of 'rising', 'constant', not flat (command line)"),
    ],
)
def test_a_number_or_word_that_no_run_can_use_is_told_in_one_line(
    word: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config=tasks/digits.yaml", f"--model.{word}"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"dna: {message}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--data.batch=128"], ["--trainer.accumulate_grad_batches=2"]])
def test_another_global_batch_than_the_recipe_s_is_refused_before_anything_is_written(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config=tasks/imagenet_vit.yaml", *words]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("dna: data.global_batch 1024: this run has 512 = ")
    assert re.search(r"gives it, --data\.global_batch=512 takes this one \(tasks/imagenet_vit\.yaml:\d+\)$", line)
    assert main(["show", "tasks/imagenet_vit.yaml", *words]) == 0
    assert f"note: fit will be refused: {line.removeprefix('dna: ')}" in capsys.readouterr().out.splitlines()
    assert not list(tmp_path.iterdir())
