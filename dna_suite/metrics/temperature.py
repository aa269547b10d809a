"""The temperature that makes a classifier's probabilities most likely."""

from __future__ import annotations

import warnings

from torch import Tensor

from dna_suite.errors import DnaError
from dna_suite.metrics.class_subset import widen

LOWEST, HIGHEST = 0.2, 5.0
PRECISION = 1e-4


def tune_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature in [0.2, 5] at which the cross-entropy of logits / temperature is least, to 1e-4, by bisection.

    Its slope has the sign of the right logit less the mean logit under softmax, and changes it once at most. A
    result at the border of the range is told in a warning.

    Args:
        logits: [n, classes], of samples that are not scored with it.
        labels: int64 [n].

    Raises:
        DnaError: no sample, or a logit is not finite.

    Source: hendrycks/natural-adv-examples@077707056, range and precision.
    """
    if len(labels) == 0:
        raise DnaError("no samples: there is no temperature to tune")
    logits = widen(logits.detach())
    if not logits.isfinite().all():
        raise DnaError(f"{int((~logits.isfinite()).any(1).sum())} of {len(labels)} samples have logits that are not finite")
    right = logits.gather(1, labels[:, None])[:, 0]
    lower, upper = LOWEST, HIGHEST
    while upper - lower > PRECISION:
        middle = (lower + upper) / 2
        expected = ((logits / middle).softmax(1) * logits).sum(1)
        if (right - expected).sum() > 0:
            upper = middle
        else:
            lower = middle
    if lower == LOWEST or upper == HIGHEST:
        warnings.warn(f"the best temperature is at or beyond the border of {LOWEST} to {HIGHEST}", stacklevel=2)
    return (lower + upper) / 2
