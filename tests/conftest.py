"""Every test: one thread, no data outside a folder of the session's own."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dna_suite.runs.record import write_result
from dna_suite.spec import AttentionSpec

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Toy twins are written once for the session."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNA_DATA", str(folder))
        yield folder


@pytest.fixture
def write_run() -> Callable[..., Path]:
    """A function that writes a run folder with a record of given metrics."""
    return _write_run


def _write_run(
    root: Path,
    attention: AttentionSpec,
    seed: int,
    metrics: dict[str, tuple[float, int]],
    *,
    finished: bool = True,
    epochs: int = 20,
    folder: str | None = None,
    **keys: Any,
) -> Path:
    """One run folder with a record; `keys` take the place of what the record says otherwise."""
    description = {
        "recipe": "digits",
        "task": "classification",
        "attention": attention.plain(),
        "label": attention.label,
        "backbone": {"name": "vit_digits", "size": "paper"},
        "seed": seed,
        "toy": False,
        "data": {"name": "digits", "counts": {}, "subset": None},
        "parameters": 142_900 if attention.name == "softmax" else 190_000,
        "multiply_adds": 2_300_000,
        "transform": {"resize": 32, "interpolation": "bicubic"},
        **keys,
    }
    path = root / (folder or f"{description['recipe']}/{attention.label}/seed{seed}")
    training = {"epochs": epochs, "steps": 20 * epochs, "seconds": 25.0, "finished": finished}
    write_result(path, description, metrics, machine={"accelerators": []}, training=training)
    return path
