"""Classification scores that count every sample once and do not depend on batches or processes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric

# Losses are added as whole multiples of 2^-24: finer than a float32 loss above 0.5 resolves, and room for a sum of 5e11.
LOSS_UNIT = 2.0**-24


def likeliest(logits: Tensor) -> Tensor:
    """The five likeliest classes of each row, likeliest first, int64 [n, 5]; all classes where there are fewer.

    Equal logits are told apart by this one call everywhere, so that the scores agree on what was predicted.
    """
    return logits.topk(min(5, logits.shape[1]), dim=1).indices


class ClassificationScores(Metric):
    """Top-1, top-5 and mean cross-entropy over the counted samples.

    All states are int64 sums, so that the order of adding, the batch size and the number of processes change no digit
    (float64, which Apple's GPUs lack, is not needed). With fewer than five classes top-5 is top-`classes`, which is 1.
    A row of logits with NaN is wrong at every k, and its loss makes the mean NaN.

    Args:
        classes: number of classes.

    Source: batch means of unequal batches give other values (Lightning-AI/pytorch-lightning#4493), padded evaluation counts
        samples twice (facebookresearch/deit#24).
    """

    full_state_update = False
    correct1: Tensor
    correct5: Tensor
    loss_units: Tensor
    not_finite: Tensor
    count: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        for name in ("correct1", "correct5", "loss_units", "not_finite", "count"):
            self.add_state(name, torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor, counted: Tensor) -> None:
        """Add a batch.

        Args:
            logits: [n, classes].
            labels: int64 [n].
            counted: bool [n]; rows that are False leave no trace.
        """
        logits = logits.detach().float()
        hits = (likeliest(logits) == labels[:, None]) & ~logits.isnan().any(1, keepdim=True)
        losses = F.cross_entropy(logits, labels, reduction="none")
        finite = losses.isfinite()
        units = torch.where(finite, losses / LOSS_UNIT, 0.0).round().long()
        self.correct1 += (hits[:, 0] & counted).sum()
        self.correct5 += (hits.any(1) & counted).sum()
        self.loss_units += (units * counted).sum()
        self.not_finite += (~finite & counted).sum()
        self.count += counted.sum()

    def compute(self) -> dict[str, float]:
        """The fractions top1 and top5, the mean loss in nats, and the number of samples; NaN where nothing was counted."""
        count = int(self.count)
        if count == 0:
            return {"top1": float("nan"), "top5": float("nan"), "loss": float("nan"), "samples": 0.0}
        loss = int(self.loss_units) * LOSS_UNIT / count if not int(self.not_finite) else float("nan")
        return {"top1": int(self.correct1) / count, "top5": int(self.correct5) / count, "loss": loss, "samples": float(count)}
