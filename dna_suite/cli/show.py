"""`dna show`: what a recipe will do, before it does it; writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dna_suite.catalogue import Target
from dna_suite.cli.argv import TrainingArguments, split_training
from dna_suite.cli.checks import check_recipe
from dna_suite.cli.recipe import Recipe, merge_recipe
from dna_suite.errors import DnaError

SUMMARY = "what a recipe will do: model, cost, steps, rates, groups; writes nothing"
USAGE = """usage: dna show RECIPE [OVERLAY ...] [--processes N] [--images_per_second X] [--section.key=value ...]

  dna show tasks/imagenet_vit.yaml --model.attention.name=dna --processes 8 --images_per_second 900

  --processes N            processes that share the batch (default: trainer.devices, or 1 where that is not a number)
  --images_per_second X    training speed of one process; adds days and GPU hours
"""


@dataclass(frozen=True)
class Question:
    """What was asked.

    Args:
        arguments: recipe files and overrides.
        processes: number of processes, None for what the recipe says.
        images_per_second: training speed of one process.
    """

    arguments: TrainingArguments
    processes: int | None
    images_per_second: float | None


def run(words: list[str]) -> int:
    """Print what a recipe will do.

    Raises:
        DnaError: the recipe is wrong.
    """
    if not words or words[0] in ("--help", "-h"):
        print(USAGE, end="")
        return 0
    question = split_question(words)
    recipe = merge_recipe(question.arguments)
    task, data = check_recipe(recipe, question.arguments.trust_imports)
    print("\n".join(describe(recipe, task, data, question)))
    return 0


def split_question(words: list[str]) -> Question:
    """Recipe files, which may stand without `--config`, the two numbers, and overrides.

    Raises:
        DnaError: a number is none, or an option is unknown.
    """
    numbers: dict[str, float | None] = {"--processes": None, "--images_per_second": None}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        flag, has_value, value = word.partition("=")
        if flag in numbers:
            text = value if has_value else (left.pop(0) if left else "")
            try:
                numbers[flag] = float(text)
            except ValueError:
                raise DnaError(f"{flag} {text!r}: a number above 0") from None
            if not float(text) > 0:
                raise DnaError(f"{flag} {text}: a number above 0")
        elif not word.startswith("-") and (not rest or rest[-1].startswith("--config=") or "=" in rest[-1]):
            rest.append(f"--config={word}")
        else:
            rest.append(word)
    processes = numbers["--processes"]
    return Question(split_training("fit", rest), None if processes is None else int(processes), numbers["--images_per_second"])


def describe(recipe: Recipe, task_target: Target, data_target: Target, question: Question) -> list[str]:
    """The lines of the answer."""
    import torch

    from dna_suite.cli.lightning import SuiteCLI
    from dna_suite.cli.quiet import quieten
    from dna_suite.cli.session import load_class
    from dna_suite.runs.device import resolve_device

    quieten()
    trainer = recipe.values["trainer"]
    shown_recipe = recipe.dump()
    notes = list(recipe.notes)
    asked = trainer.get("accelerator", "auto"), str(trainer.get("precision", "32-true"))
    trainer["accelerator"], trainer["precision"], changed = resolve_device("auto", asked[1])
    trainer.update(devices=1, strategy="auto", num_nodes=1)
    cli = SuiteCLI(load_class(task_target), load_class(data_target), recipe, callbacks=[], plugins=[])
    task, data = cli.model, cli.datamodule
    counts, classes, source = find_counts(data, data_target)
    task.classes = classes
    task.adopt(data)
    with torch.device("meta"):
        net = task.build()
    processes = question.processes or planned_processes(recipe)
    lines = [shown_recipe, *network_lines(task, net), ""]
    lines += data_lines(task, data, counts, source)
    lines += ["", *step_lines(task, net, data, counts, processes, recipe, question.images_per_second)]
    return [*lines, *(f"note: {note}" for note in [*notes, *changed])]


def find_counts(data: Any, target: Target) -> tuple[dict[str, int], list[str], str]:
    """Samples per split, class names, and where they are from: the folder, or the published numbers where it is not there."""
    try:
        if data.toy:
            raise DnaError("a toy twin may have to be written first")
        return data.counts(), list(data.classes), "counted"
    except DnaError:
        return (
            dict(target.counts),
            [str(number) for number in range(target.classes)],
            "published numbers; the folder was not read",
        )


def planned_processes(recipe: Recipe) -> int:
    """Devices times nodes where the recipe says numbers, else 1."""
    devices, nodes = recipe.get("trainer.devices", 1), recipe.get("trainer.num_nodes", 1)
    return devices * nodes if isinstance(devices, int) and devices > 0 and isinstance(nodes, int) else 1


def network_lines(task: Any, net: Any) -> list[str]:
    """Attention sites and cost."""
    import torch

    from dna_suite.backbones.cost import count_multiply_adds, count_parameters
    from dna_suite.backbones.engines import grouped_engines
    from dna_suite.runs.summary import grouped_sites

    lines = ["attention sites:", *(f"  {line}" for line in grouped_sites(net))]
    engines = grouped_engines(net, "cuda" if torch.cuda.is_available() else "cpu", task.compile_network)
    lines += [f"engine:          {line}" for line in engines]
    lines.append(f"parameters:      {count_parameters(net):,}")
    cost = count_multiply_adds(net, task.image_size)
    lines.append(f"multiply-adds:   {cost:,} for one picture of {task.image_size} px (attention un-fused)")
    return lines


def plural(number: int, noun: str) -> str:
    """The number with its noun, as in "2 processes"."""
    return f"{number} {noun}{'es' if number > 1 else ''}"


def listed(values: dict[str, Any]) -> str:
    """Names and values in a row."""
    return ", ".join(f"{key} {value}" for key, value in values.items())


def data_lines(task: Any, data: Any, counts: dict[str, int], source: str) -> list[str]:
    """Samples and transforms."""
    mixing = f", mixup {task.mixup:g}, cutmix {task.cutmix:g}, label smoothing {task.label_smoothing:g}"
    return [
        f"data:            {data.name}, {', '.join(f'{split} {count:,}' for split, count in counts.items())} ({source})",
        f"augmentation:    {listed(data.augmentation())}{mixing}",
        f"evaluation:      {listed(data.transform())}",
    ]


def step_lines(
    task: Any, net: Any, data: Any, counts: dict[str, int], processes: int, recipe: Recipe, images_per_second: float | None
) -> list[str]:
    """Batch, steps, rates, groups, duration."""
    from dna_suite.data.base import limit_batches
    from dna_suite.data.order import EpochBatches
    from dna_suite.tasks.optim import rates, scaled_lr

    trainer = recipe.values["trainer"]
    accumulate, epochs = trainer.get("accumulate_grad_batches", 1), trainer.get("max_epochs", 1)
    length = min(counts["train"], data.subset or counts["train"])
    whole = EpochBatches(length, data.batch, world=processes)
    limit = limit_batches(len(whole), trainer.get("limit_train_batches", 1.0))
    batches = EpochBatches(length, data.batch, world=processes, accumulate=accumulate, limit=limit)
    batch = data.batch * processes * accumulate
    peak = scaled_lr(task.optim, batch)
    curve = list(rates(epochs, batches.steps_per_epoch, peak, task.schedule))
    picked = sorted({0, 1, round(task.schedule.warmup_epochs), epochs // 2, epochs - 1} & set(range(epochs)))
    lines = [
        f"effective batch: {batch} = {data.batch} x {plural(processes, 'process')} x {plural(accumulate, 'micro-batch')}",
        f"steps:           {batches.steps_per_epoch:,} an epoch, {batches.steps_per_epoch * epochs:,} in {epochs} epochs",
        f"peak rate:       {peak:.4g} (lr {task.optim.lr:g} at batch {task.optim.lr_batch}, scaling {task.optim.lr_scaling})",
        "rate at epoch:   " + ", ".join(f"{epoch} {curve[epoch]:.4g}" for epoch in picked),
        f"optimiser:       {task.optim.name}, clipping {trainer.get('gradient_clip_val')}",
        *group_lines(task, net),
    ]
    if images_per_second:
        seconds = length * epochs / (images_per_second * processes)
        hours = seconds * processes / 3600
        lines.append(f"duration:        {seconds / 86400:.2f} days, {hours:,.1f} GPU hours at {images_per_second:g} pictures/s")
    return lines


def group_lines(task: Any, net: Any) -> list[str]:
    """One line per optimiser group: decay, tensors, numbers, and the kinds of parameters in it."""
    from dna_suite.tasks.optim import group_parameters

    sizes = {name: parameter.numel() for name, parameter in net.named_parameters()}
    lines = []
    for group in group_parameters(net, task.optim.weight_decay):
        kinds = sorted({".".join(name.split(".")[-2:]) if "." in name else name for name in group.names})
        total = sum(sizes[name] for name in group.names)
        lines.append(
            f"  {group.name:<9} decay {group.weight_decay:g}: {len(group.names)} tensors, {total:,} numbers ({', '.join(kinds)})"
        )
    return lines
