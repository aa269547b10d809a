"""A run that was stopped and resumed is, bit for bit, the run that was never stopped."""

from __future__ import annotations

import random

import pytest
from toy_loop import Outcome, run, same

# 14 samples in batches of 4: 4 batches, the last of 2; 38: 10 batches, a last window of 1 at accumulate 3. Both make 12 steps.
SETTINGS = {
    "plain": {"length": 14},
    "accumulated": {"length": 38, "accumulate_grad_batches": 3},
    "validated-inside": {"length": 14, "val_check_interval": 0.5},
    "validated-rarely": {"length": 38, "accumulate_grad_batches": 3, "check_val_every_n_epoch": 2},
    "not-validated": {"length": 14, "limit_val_batches": 0},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return {name: run(tmp_path_factory.mktemp("whole"), **options) for name, options in SETTINGS.items()}


def assert_equal(resumed: Outcome, whole: Outcome) -> None:
    assert resumed.trace.steps == whole.trace.steps
    assert resumed.trace.validations == whole.trace.validations
    assert same(resumed.state, whole.state)


@pytest.mark.parametrize("setting", ["plain", "accumulated"])
def test_every_border_resumes_bit_equal(setting, whole, tmp_path):
    assert whole[setting].trainer.global_step == 12
    for border in range(1, 13):
        resumed = run(tmp_path / str(border), [border], **SETTINGS[setting])
        assert resumed.stops == [border]
        assert_equal(resumed, whole[setting])


@pytest.mark.parametrize("setting", SETTINGS)
def test_chains_of_four_random_stops_resume_bit_equal(setting, whole, tmp_path):
    draw = random.Random(setting)
    for chain in range(2):
        stops = sorted(draw.sample(range(1, 13), 4))
        resumed = run(tmp_path / str(chain), stops, **SETTINGS[setting])
        assert resumed.stops == stops
        assert_equal(resumed, whole[setting])
