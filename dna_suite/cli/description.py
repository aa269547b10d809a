"""What the record of a run says beside its metrics: model, data, cost and start."""

from __future__ import annotations

from typing import Any

from dna_suite.backbones.cost import count_multiply_adds, count_parameters
from dna_suite.cli.recipe import Recipe
from dna_suite.data.base import Data
from dna_suite.data.robustness import RobustnessSets
from dna_suite.runs.folder import RunFolder
from dna_suite.runs.summary import grouped_sites
from dna_suite.tasks.base import Task


def describe_run(recipe: Recipe, task: Task, data: Data, folder: RunFolder) -> dict[str, Any]:
    """The description that `write_result` takes, as plain values.

    Args:
        recipe: the run's recipe.
        task: its task, with the network built.
        data: its data.
        folder: its folder, which says what it started from.
    """
    described, net = task.describe(), task.net
    assert net is not None
    protocol = {"protocol": data.protocol()} if isinstance(data, RobustnessSets) else {}
    return {
        "recipe": recipe.name,
        "task": described["task"],
        "attention": described["attention"],
        "label": task.attention.label,
        "backbone": described["backbone"],
        "seed": recipe.values["seed"],
        "toy": data.toy,
        "data": {
            "name": data.name,
            "root": data.root,
            "counts": data.counts(),
            "subset": data.subset,
            "val_from": data.source("val") if "val" in data.splits else None,
            "test_from": data.source("test"),
            "skipped": len(data.skipped),
            **protocol,
        },
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "trainable": count_parameters(net),
        "multiply_adds": count_multiply_adds(net, described["backbone"]["image_size"]),
        "transform": described["transform"],
        "sites": grouped_sites(net),
        "init_from": folder.initial_weights(),
    }
