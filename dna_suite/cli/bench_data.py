"""What an image costs in the suite's input pipeline, over timm's `create_loader` with the same augmentations."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from torch.utils.data import DataLoader

from dna_suite.cli.bench_pictures import write_pictures
from dna_suite.cli.bench_timing import compare, summarise, take_turns
from dna_suite.cli.bench_timm_data import load_folder, load_pictures, share_flip
from dna_suite.cli.data import build_data
from dna_suite.cli.recipe import read_recipe
from dna_suite.data.batches import leave_out_skipped
from dna_suite.data.images import ImageData
from dna_suite.data.order import EpochBatches, seed_all
from dna_suite.data.resident import MovedBatches, Resident
from dna_suite.errors import DnaError
from dna_suite.runs.tables import Table

RECIPE = "tasks/imagenet_vit.yaml"
ROUNDS, PICTURES, BATCH = 7, 256, 64
REPEATS = 3
# CIFAR's size and usual augmentation; a whole set has 50,000.
SIDE, SHIFT, FLIP, SMALL = 32, 4, 0.5, 2048
POSTERIZE = "timm's posterize is patched to keep one bit at least: as it is, Pillow 13 ends the run once in some 650 pictures"

Pass = Callable[[], int]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times passes over the same pictures in turns, ours and timm's, without workers: all of it is CPU time of one process.

    Both sides end with uint8 batches; normalising and erasing belong to the device.

    Args:
        options: pictures, batch, rounds, threads.

    Returns:
        "rows": microseconds an image of both sides and their ratio; "pixels": mean difference to timm's pixels, grey levels;
        "line" for the reader.

    Raises:
        DnaError: fewer pictures than a batch.
    """
    number, batch = options.pictures or PICTURES, (options.batch or [BATCH])[0]
    if number < batch:
        raise DnaError(f"--pictures {number}: at least a batch, which is {batch} (--batch)")
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        written = write_pictures(root, number)
        once, repeated = (read_data(root, batch, repeats) for repeats in (1, REPEATS))
        rows = {
            f"training, {REPEATS} repeats": (pass_training(repeated), pass_over(load_folder(repeated, root / "train", True))),
            "training": (pass_training(once), pass_over(load_folder(once, root / "train", True))),
            "evaluation": (pass_over(once.test_dataloader()), pass_over(load_folder(once, root / "val", False))),
            f"{SIDE} pixels, in memory": pass_small(batch),
        }
        measured = {name: compare_sides(*sides, options.rounds or ROUNDS) for name, sides in rows.items()}
        pixels = {split: differ(once, root / split, split) for split in ("train", "val")}
    described = {"recipe": RECIPE, "batch": batch, "threads": options.threads, "written": written}
    table = draw_table(f"recipe {RECIPE}, batch {batch}, {options.threads} thread(s), {describe(written)}", measured)
    differences = f"training {pixels['train']:.4f}, evaluation {pixels['val']:.4f} grey levels"
    table.notes.append(f"mean difference to timm's pixels: {differences}")
    table.notes.append(f"{POSTERIZE} (Pillow {PIL.__version__} here)")
    return {"line": f"\n{table.text()}\n", **described, "note": POSTERIZE, "rows": measured, "pixels": pixels}


def read_data(root: Path, batch: int, repeats: int) -> ImageData:
    """The recipe's data module over the written pictures."""
    keys = {"root": root, "batch": batch, "repeats": repeats, "workers": 0}
    data = build_data(read_recipe(["--config", RECIPE, *(f"--data.{key}={value}" for key, value in keys.items())]))
    assert isinstance(data, ImageData)
    return data


def pass_over(loader: DataLoader) -> Pass:
    """Takes every batch of a loader and counts the pictures."""
    return lambda: sum(len(batch["image"] if isinstance(batch, dict) else batch[0]) for batch in loader)


def pass_training(data: ImageData) -> Pass:
    """Goes through one epoch after the other: each pass draws other augmentations."""
    run, epochs = pass_over(data.train_dataloader()), iter(range(10**9))

    def take() -> int:
        data.load_state_dict({"step": next(epochs) * data.train_batches.steps_per_epoch})
        return run()

    return take


def pass_small(batch: int) -> tuple[Pass, Pass]:
    """CIFAR's usual augmentation of pictures in memory: our batches of resident pictures, and timm's loader."""
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 256, (SMALL, SIDE, SIDE, 3), dtype=np.uint8)
    labels = generator.integers(0, 10, SMALL)
    resident = Resident(np.ascontiguousarray(pictures.transpose(0, 3, 1, 2)), labels)
    batches = EpochBatches(SMALL, batch)
    ours = DataLoader(MovedBatches(resident, 0, SHIFT, FLIP), batch_sampler=batches, collate_fn=leave_out_skipped)
    return pass_over(ours), pass_over(load_pictures(pictures, labels, batch, SHIFT, FLIP))


def compare_sides(ours: Pass, theirs: Pass, rounds: int) -> dict[str, Any]:
    """Costs of an image on both sides, and timm's over ours."""
    counts = {"ours": ours(), "timm": theirs()}
    seed_all(0)
    turns = take_turns({"ours": ours, "timm": theirs}, rounds)
    costs = {side: [cost / counts[side] for cost in turns[side]] for side in turns}
    sides = {}
    for side, found in costs.items():
        micro = {key: 1e3 * value for key, value in summarise(found).items() if key != "quartiles"}
        sides[side] = {
            "wall_us": micro["ms"],
            "cpu_us": micro["cpu_ms"],
            "wall_quartiles_us": [1e3 * value for value in summarise(found)["quartiles"]],
            "images_per_second_and_core": 1e6 / micro["cpu_ms"],
            "images_per_pass": counts[side],
        }
    return {**sides, "ratio": compare(costs["timm"], costs["ours"])}


def differ(data: ImageData, folder: Path, split: str) -> float:
    """The mean difference of our pixels and timm's on a folder's pictures, with the same draws; grey levels."""
    training = split == "train"
    theirs: Any = load_folder(data, folder, training).dataset
    share_flip(theirs.transform)
    samples: Any = data.samples(split)
    total = 0.0
    for index in range(len(samples)):
        seed_all(index)
        ours = samples[index]["image"].numpy().astype(np.int64)
        seed_all(index)
        total += float(np.abs(ours - np.asarray(theirs[index][0])).mean())
    return total / len(samples)


def describe(written: dict[str, Any]) -> str:
    """What was read, in words."""
    return "{pictures} JPEGs of {size[0]} x {size[1]}, {mean_bytes:,} bytes on average ({source})".format(**written)


def draw_table(title: str, rows: dict[str, Any]) -> Table:
    """One line per kind of pass."""
    table = Table(title)
    table.add("pass", list(rows))
    for side in ("ours", "timm"):
        table.add(f"{side}: CPU us an image", [f"{row[side]['cpu_us']:.0f}" for row in rows.values()])
        table.add("wall", [f"{row[side]['wall_us']:.0f}" for row in rows.values()])
        table.add("images/s and core", [f"{row[side]['images_per_second_and_core']:,.0f}" for row in rows.values()])
    table.add("times as fast (CPU)", [f"{row['ratio']['cpu_ratio']:.2f}" for row in rows.values()])
    table.add("quartiles", ["{:.2f} to {:.2f}".format(*row["ratio"]["cpu_quartiles"]) for row in rows.values()])
    return table
