"""`dna show`: what a recipe will do, before it does it; writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dna_suite.catalogue import Target
from dna_suite.cli.argv import TrainingArguments, split_training
from dna_suite.cli.checks import check_recipe
from dna_suite.cli.recipe import Recipe, merge_recipe
from dna_suite.cli.start import check_start, take_start, told_start
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
    check_start(question.arguments)
    recipe = merge_recipe(question.arguments)
    take_start(recipe, question.arguments)
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

    from dna_suite.cli.lightning import SuiteCLI, located
    from dna_suite.cli.quiet import quieten
    from dna_suite.cli.session import load_class
    from dna_suite.cli.show_training import training_lines
    from dna_suite.data.global_batch import GlobalBatch
    from dna_suite.runs.device import resolve_device

    quieten()
    trainer = recipe.values["trainer"]
    shown_recipe = recipe.dump()
    processes = question.processes or planned_processes(recipe)
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
    lines = [shown_recipe, *network_lines(task, net), f"starts from:     {told_start(recipe)}", ""]
    lines += data_lines(task, data, counts, source)
    if task_target.trains:
        lines += ["", *training_lines(task, net, data, counts["train"], processes, recipe, question.images_per_second)]
    batch = GlobalBatch(data.batch, processes, recipe.get("trainer.accumulate_grad_batches", 1))
    mismatch = batch.mismatch(data.wanted_batch)
    refused = [f"fit will be refused: {located(mismatch, recipe)}"] if mismatch else []
    return [*lines, *(f"note: {note}" for note in [*notes, *changed, *refused])]


def find_counts(data: Any, target: Target) -> tuple[dict[str, int], list[str], str]:
    """Samples per split, class names, and where they are from: the folder, or the published numbers where it is not there."""
    try:
        if data.toy:
            raise DnaError("a toy twin may have to be written first")
        return data.counts(), list(data.classes), "counted"
    except DnaError:
        return (
            divide_counts(target.counts, data.holdout, data.subset) if target.counts else data.published_counts(),
            [str(number) for number in range(target.classes)],
            "from the published numbers; the folder was not read",
        )


def divide_counts(published: Mapping[str, int], holdout: float | None, subset: int | None) -> dict[str, int]:
    """The samples of each split after the holdout and the subset of train.

    Args:
        published: samples of each split.
        holdout: samples, or a part between 0 and 1, of train that serve as val; None is none.
        subset: most samples of train; None is all.

    Raises:
        DnaError: the holdout leaves nothing.
    """
    counts = dict(published)
    if holdout is not None:
        counts["val"] = holdout if isinstance(holdout, int) else max(1, round(holdout * counts["train"]))
        counts["train"] -= counts["val"]
    if counts["train"] < 1:
        raise DnaError(f"data.holdout {holdout} of {published['train']} training samples leaves none")
    if subset is not None:
        counts["train"] = min(counts["train"], subset)
    return {split: counts[split] for split in ("train", "val", "test") if split in counts}


def planned_processes(recipe: Recipe) -> int:
    """Devices times nodes where the recipe says numbers, else 1."""
    devices, nodes = recipe.get("trainer.devices", 1), recipe.get("trainer.num_nodes", 1)
    return devices * nodes if isinstance(devices, int) and devices > 0 and isinstance(nodes, int) else 1


def network_lines(task: Any, net: Any) -> list[str]:
    """Attention sites and cost."""
    import torch

    from dna_suite.backbones.cost import count_multiply_adds
    from dna_suite.backbones.engines import grouped_engines
    from dna_suite.runs.summary import grouped_sites, told_parameters

    lines = ["attention sites:", *(f"  {line}" for line in grouped_sites(net))]
    engines = grouped_engines(net, "cuda" if torch.cuda.is_available() else "cpu", task.compile_network)
    lines += [f"engine:          {line}" for line in engines]
    lines.append(f"parameters:      {told_parameters(net)}")
    cost = count_multiply_adds(net, task.image_size)
    lines.append(f"multiply-adds:   {cost:,} for one picture of {task.image_size} px (attention un-fused)")
    return lines


def listed(values: dict[str, Any]) -> str:
    """Names and values in a row."""
    return ", ".join(f"{key} {value}" for key, value in values.items())


def data_lines(task: Any, data: Any, counts: dict[str, int], source: str) -> list[str]:
    """Samples and transforms."""
    lines = [f"data:            {data.name}, {', '.join(f'{split} {count:,}' for split, count in counts.items())} ({source})"]
    if data.augmentation():
        mixing = f", mixup {task.mixup:g}, cutmix {task.cutmix:g}, label smoothing {task.label_smoothing:g}"
        lines.append(f"augmentation:    {listed(data.augmentation())}{mixing}")
    return [*lines, f"evaluation:      {listed(data.transform())}"]
