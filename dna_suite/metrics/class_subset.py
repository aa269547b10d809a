"""What a classifier says when only some of its classes may be named."""

from __future__ import annotations

import torch
from torch import Tensor

from dna_suite.metrics.classification import likeliest


def widen(logits: Tensor) -> Tensor:
    """Logits in float64, or in float32 on Apple's GPUs, which lack it.

    In half precision exp overflows, and 30,000 confidences have a few hundred values; in float32 a lead of 25 is a certainty.
    Values of scores that depend on order then depend on the order of equal ones.
    """
    return logits.to(torch.float32 if logits.device.type == "mps" else torch.float64)


def subset_confidence(logits: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """The largest probability among some classes, and the class that has it; softmax is over those classes alone.

    Args:
        logits: [n, classes] of all classes, of any precision.
        columns: int64 [m], the classes that may be named.

    Returns:
        Confidence [n], NaN in a row with NaN among the columns; int64 [n], columns of `logits`.

    Source: the protocol of ImageNet-A, -O and -R. A softmax over all classes, from which some are then selected, gives other
        confidences; labels that count the classes of a set must not meet columns that count all
        (huggingface/pytorch-image-models#176, #2456).
    """
    chosen = logits.detach()[:, columns]
    return widen(chosen).softmax(1).amax(1), columns[likeliest(chosen)[:, 0]]


def subset_top1(logits: Tensor, labels: Tensor, columns: Tensor) -> float:
    """The share of samples whose likeliest class among some is the right one; a row with NaN is wrong.

    Args:
        logits: [n, classes] of all classes.
        labels: int64 [n], columns of the right classes.
        columns: int64 [m], the classes that may be named.
    """
    confidence, predicted = subset_confidence(logits, columns)
    return float(((predicted == labels) & confidence.isfinite()).double().mean())
