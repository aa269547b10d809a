"""A run that was stopped and resumed is, bit for bit, the run that was never stopped."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_loop import Outcome, run, same

# 14 samples in batches of 4: 4 batches, the last of 2; 38: 10 batches, a last window of 1 at accumulate 3. Both make 12 steps.
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"length": 14},
    "accumulated": {"length": 38, "accumulate_grad_batches": 3, "ema": 0.9},
    "validated-inside": {"length": 14, "val_check_interval": 0.5, "ema": 0.9},
    "validated-rarely": {"length": 38, "accumulate_grad_batches": 3, "check_val_every_n_epoch": 2},
    "not-validated": {"length": 14, "limit_val_batches": 0},
}
VALIDATION: dict[str, dict[str, Any]] = {
    "each-epoch": {},
    "every-second": {"check_val_every_n_epoch": 2},
    "at-0.3": {"val_check_interval": 0.3},
    "never": {"limit_val_batches": 0},
}
Whole = Callable[..., Outcome]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The run of some options that was never stopped, made once; workers are no part of what it depends on."""
    made: dict[str, Outcome] = {}

    def run_whole(**options: Any) -> Outcome:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = run(tmp_path_factory.mktemp("whole"), **options)
        return made[key]

    return run_whole


def assert_equal(resumed: Outcome, whole: Outcome) -> None:
    assert resumed.trace.steps == whole.trace.steps
    assert resumed.trace.validations == whole.trace.validations
    assert same(resumed.state, whole.state)


@pytest.mark.parametrize("setting", ["plain", "accumulated"])
def test_every_border_resumes_bit_equal(setting: str, whole: Whole, tmp_path: Path) -> None:
    options = SETTINGS[setting]
    unstopped = whole(**options)
    assert unstopped.trainer.global_step == 12
    assert ("averaging_state" in unstopped.state) == ("ema" in options)
    for border in range(1, 13):
        resumed = run(tmp_path / str(border), [border], **options)
        assert resumed.stops == [border]
        assert_equal(resumed, unstopped)


@pytest.mark.parametrize("setting", SETTINGS)
def test_chains_of_four_random_stops_resume_bit_equal(setting: str, whole: Whole, tmp_path: Path) -> None:
    draw = random.Random(setting)
    for chain in range(2):
        stops = sorted(draw.sample(range(1, 13), 4))
        resumed = run(tmp_path / str(chain), stops, **SETTINGS[setting])
        assert resumed.stops == stops
        assert_equal(resumed, whole(**SETTINGS[setting]))


@pytest.mark.parametrize(("workers", "persistent"), [((2, 0, 1), False), ((2,), True)])
def test_workers_and_their_number_make_no_difference(
    workers: tuple[int, ...], persistent: bool, whole: Whole, tmp_path: Path
) -> None:
    options = SETTINGS["accumulated"]
    resumed = run(tmp_path, [3, 8], workers=workers, persistent=persistent, **options)
    assert resumed.stops == [3, 8]
    assert_equal(resumed, whole(**options))


@pytest.mark.slow
@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("accumulate", [1, 2, 3, 4])
@pytest.mark.parametrize("validation", VALIDATION)
def test_the_whole_matrix(validation: str, accumulate: int, ema: float | None, whole: Whole, tmp_path: Path) -> None:
    """Each border alone, chains of one to six stops, and chains with two workers, persistent ones, and a changing number."""
    options = {"length": 38, "accumulate_grad_batches": accumulate, "ema": ema, **VALIDATION[validation]}
    unstopped = whole(**options)
    last = unstopped.trainer.global_step
    assert last == 3 * -(-10 // accumulate)
    draw = random.Random(f"{validation} {accumulate} {ema}")
    chains = [[border] for border in range(1, last + 1)]
    chains += [sorted(draw.sample(range(1, last + 1), length)) for length in range(2, 7)]
    for number, stops in enumerate(chains):
        resumed = run(tmp_path / str(number), stops, **options)
        # A validation inside a window ends the run at once where the border before it was saved.
        early = 1 if validation == "at-0.3" and accumulate > 1 else 0
        assert all(0 <= asked - stop <= early for asked, stop in zip(stops, resumed.stops, strict=True))
        assert_equal(resumed, unstopped)
    for number, (workers, persistent) in enumerate((((2,), False), ((2,), True), ((2, 0, 1), False))):
        stops = sorted(draw.sample(range(1, last + 1), 3))
        resumed = run(tmp_path / f"workers{number}", stops, workers=workers, persistent=persistent, **options)
        assert_equal(resumed, unstopped)
