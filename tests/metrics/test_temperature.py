"""The temperature that is found against those that are known."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from dna_suite.errors import DnaError
from dna_suite.metrics.temperature import tune_temperature


def two_classes(lead: float, right: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that lead by the same amount, right in some of the samples."""
    return torch.tensor([[lead, 0.0]]).repeat(samples, 1), (torch.arange(samples) >= right).long()


@pytest.mark.parametrize(("lead", "right"), [(3.0, 75), (1.0, 75), (5.0, 90), (0.5, 60)])
def test_confidence_becomes_the_share_of_right_answers(lead, right):
    temperature = tune_temperature(*two_classes(lead, right, 100))
    # sigmoid(lead / temperature) = right / 100; the bisection stops at 1e-4.
    assert temperature == pytest.approx(lead / math.log(right / (100 - right)), abs=1e-4)


def test_no_temperature_nearby_has_a_smaller_loss_and_scale_is_undone():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(500, 7, generator=generator), torch.randint(0, 7, (500,), generator=generator)
    logits[torch.arange(500), labels] += 1.5
    temperature = tune_temperature(logits, labels)
    losses = [float(F.cross_entropy(logits.double() / (temperature + shift), labels)) for shift in (-0.01, 0.0, 0.01)]
    assert losses[1] < min(losses[0], losses[2])
    assert tune_temperature(3 * logits, labels) == pytest.approx(3 * temperature, abs=4e-4)


@pytest.mark.parametrize(("right", "border"), [(100, 0.2), (40, 5.0)])
def test_a_temperature_at_the_border_is_told(right, border):
    # All right: the surer the better. Worse than chance: the less sure the better.
    with pytest.warns(UserWarning, match="border of 0.2 to 5"):
        assert tune_temperature(*two_classes(2.0, right, 100)) == pytest.approx(border, abs=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune_temperature(*two_classes(2.0, 75, 100))


def test_nothing_and_what_is_no_number_are_errors():
    with pytest.raises(DnaError, match="no samples"):
        tune_temperature(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    with pytest.raises(DnaError, match="1 of 2 samples have logits that are not finite"):
        tune_temperature(torch.tensor([[0.0, math.nan], [1.0, 0.0]]), torch.tensor([0, 1]))
