"""What an attention costs in a whole image model, over timm's own model of that shape."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn

from dna_suite.backbones.cost import count_multiply_adds, count_parameters
from dna_suite.backbones.images import build_convit, build_image_model, build_swin, build_vit
from dna_suite.catalogue import BACKBONES, ConViT, Swin, ViT
from dna_suite.cli.bench_subjects import PASSES, Subject, describe_subject, read_label
from dna_suite.cli.bench_timing import compare, take_turns
from dna_suite.errors import DnaError, UnknownName
from dna_suite.runs.tables import Table

ROUNDS, CLASSES = 5, 1000
TIMM = "timm"


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times models in turns: timm's own, then one for each attention, softmax first.

    Args:
        options: operators, backbone, size, image_size, batch, dtype, device, rounds, threads.

    Returns:
        "models": time, samples a second, bytes kept for the backward pass, parameters and multiply-adds of each; "ratios": each
        over timm's own and over softmax; "line" for the reader.

    Raises:
        DnaError: an attention cannot stand in the backbone, or the device is not there.
        UnknownName: no such backbone or size.
    """
    backbone, size, image_size = options.backbone or "vit_base", options.size or "paper", options.image_size or 224
    if backbone not in BACKBONES:
        raise UnknownName("backbone", backbone, BACKBONES, "--backbone")
    if size not in BACKBONES[backbone]:
        raise UnknownName(f"size of {backbone}", size, BACKBONES[backbone], "--size")
    batch, device = (options.batch or [2])[0], options.device or "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise DnaError(f"--device {device}: torch sees no CUDA device here")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype or "float32")
    labels = list(dict.fromkeys(["softmax", *(options.operators or ["dna"])]))
    models = {TIMM: build_own(backbone, size, image_size)}
    for label in labels:
        models[label] = build_image_model(
            backbone, size=size, attention=read_label(label), num_classes=CLASSES, image_size=image_size
        )
    pictures = torch.randn(batch, 3, image_size, image_size, dtype=dtype, device=device)
    subjects = {name: _subject(name, model.to(device=device, dtype=dtype), pictures) for name, model in models.items()}
    costs = {}
    for passes in PASSES:
        costs[passes] = take_turns({name: getattr(s, passes) for name, s in subjects.items()}, options.rounds or ROUNDS, device)
    described = {}
    for name, subject in subjects.items():
        described[name] = describe_subject(subject, costs, batch, device)
        described[name]["parameters"] = count_parameters(models[name])
        # Timm's own attention does not say what it costs.
        described[name]["multiply_adds"] = None if name == TIMM else count_multiply_adds(models[name], image_size)
    compared = [(label, base) for label in labels for base in (TIMM, "softmax") if label != base]
    ratios = [
        {"attention": label, "over": base, **{passes: compare(costs[passes][label], costs[passes][base]) for passes in PASSES}}
        for label, base in compared
    ]
    settings = {"backbone": backbone, "size": size, "image_size": image_size, "batch": batch, "dtype": options.dtype or "float32"}
    settings |= {"device": device, "threads": options.threads}
    title = ", ".join(f"{key} {value}" for key, value in settings.items())
    return {"line": f"\n{_table(title, described, ratios).text()}\n", **settings, "models": described, "ratios": ratios}


def build_own(backbone: str, size: str, image_size: int) -> nn.Module:
    """Timm's own model of a backbone's shape, its attention untouched."""
    shape, common = BACKBONES[backbone][size], {"img_size": image_size, "num_classes": CLASSES}
    match shape:
        case ViT():
            return build_vit(shape, True, **common)
        case Swin():
            return build_swin(shape, **common)
        case ConViT():
            return build_convit(shape, **common)


def _subject(name: str, model: nn.Module, pictures: torch.Tensor) -> Subject:
    # No dropout anywhere, and a distilled model gives one tensor.
    model.eval()
    parameters = [*model.parameters(), *model.buffers()]
    return Subject(name, lambda: model(pictures), [p for p in model.parameters() if p.requires_grad], parameters)


def _table(title: str, models: dict[str, Any], ratios: list[dict[str, Any]]) -> Table:
    table = Table(title)
    table.add("attention", list(models))
    for passes in PASSES:
        table.add(f"{passes} ms", [f"{model[passes]['ms']:.4g}" for model in models.values()])
    table.add("samples/s", [f"{model['step']['samples_per_second']:.3g}" for model in models.values()])
    table.add("kept MiB", [f"{model['kept_bytes'] / 2**20:.0f}" for model in models.values()])
    table.add("parameters", [f"{model['parameters']:,}" for model in models.values()])
    counts = [model["multiply_adds"] for model in models.values()]
    table.add("G multiply-adds", [f"{count / 1e9:.3f}" if count else "-" for count in counts])
    for ratio in ratios:
        both = (
            f"{passes} {ratio[passes]['ratio']:.3f} ({ratio[passes]['quartiles'][0]:.3f} to {ratio[passes]['quartiles'][1]:.3f}; "
            f"CPU time {ratio[passes]['cpu_ratio']:.3f})"
            for passes in PASSES
        )
        table.notes.append(f"{ratio['attention']} over {ratio['over']}: {', '.join(both)}")
    return table
