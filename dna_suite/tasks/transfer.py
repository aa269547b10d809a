"""Transfer: image classification that starts from weights that were trained on other pictures."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn

from dna_suite.tasks.classification import ImageClassification


class Transfer(ImageClassification):
    """Image classification with a new head on a network that was trained on other pictures.

    The recipe's key `pretrained` or `--init_from` says which weights; a head for other classes is made anew, and the position
    table is resized to `data.size`. A frozen backbone (linear probe) is in no optimiser group, and computes as in evaluation:
    without dropout, drop path and dropout of attention maps.

    Args:
        backbone: a key of `catalogue.BACKBONES`.
        freeze: none trains the whole network; backbone trains the head alone.
        model: the other arguments of `ImageClassification`.

    Source: DnA, appendix C.1 (i) and Table 8.
    """

    name = "transfer"

    def __init__(self, backbone: str, freeze: Literal["none", "backbone"] = "none", **model: Any) -> None:
        super().__init__(backbone, **model)
        self.freeze_part = freeze

    def build(self) -> nn.Module:
        """The vision transformer with the run's attention, its backbone frozen where that is asked for."""
        net = super().build()
        if self.freeze_part == "backbone":
            net.requires_grad_(False)
            for head in heads_of(net):
                head.requires_grad_(True)
            rest_backbone(net)
        return net

    def train(self, mode: bool = True) -> Transfer:
        """Switch to training or evaluation; a frozen backbone stays in evaluation."""
        super().train(mode)
        if mode and self.net is not None and self.freeze_part == "backbone":
            rest_backbone(self.net)
        return self


def heads_of(net: Any) -> tuple[nn.Module, ...]:
    """The classifiers of a network: one, or two where it is distilled."""
    found = net.get_classifier()
    return found if isinstance(found, tuple) else (found,)


def rest_backbone(net: nn.Module) -> None:
    """Put all of a network but its classifiers in evaluation mode."""
    training = {head: head.training for head in heads_of(net)}
    net.eval()
    for head, mode in training.items():
        head.train(mode)
