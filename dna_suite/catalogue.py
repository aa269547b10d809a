"""The names a recipe may use, as plain data readable without torch: operators, patterns, backbones, tasks, data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Operator:
    """One attention operator as `dna list` shows it.

    Args:
        streams: the projections that the layer makes, in order.
        formula: the equation; s is softmax, s^ softmin, a the learned alpha of each head.
        source: where the operator comes from.
        options: option name -> default value; the default's type is the option's type.
    """

    streams: tuple[str, ...]
    formula: str
    source: str
    options: Mapping[str, object] = field(default_factory=dict)


OPERATORS: dict[str, Operator] = {
    "softmax": Operator(("q", "k", "v"), "s(Q K') V", "Vaswani et al. 2017; timm Attention"),
    "dna": Operator(
        ("q", "q_neg", "k", "v", "v_neg"), "s(Q+ K') V+ + a s^(Q- K') V-", "DnA section 3.2, Algorithm 1", {"alpha": 0.5}
    ),
    "dna-q": Operator(("q", "q_neg", "k", "v"), "(s(Q+ K') + a s^(Q- K')) V", "DnA appendix C.5, Q±V", {"alpha": 0.5}),
    "dna-v": Operator(("q", "k", "v", "v_neg"), "s(Q K') V+ + a s^(Q K') V-", "DnA appendix C.5, QV±", {"alpha": 0.5}),
    "dna-shared": Operator(("q", "k", "v"), "(s(Q K') + a s^(Q K')) V", "DnA appendix C.5, A± with alpha", {"alpha": 0.5}),
    "dna-shared-plain": Operator(("q", "k", "v"), "(s(Q K') + s^(Q K')) V", "DnA appendix C.5, A±"),
}

PATTERNS: dict[str, str] = {}


@dataclass(frozen=True)
class ViT:
    """Shape of a plain vision transformer.

    Args:
        dim: width of a token.
        depth: number of blocks.
        heads: attention heads in each block.
        patch: side of a patch, pixels.
        distilled: a second prefix token and head, as in DeiT.
    """

    dim: int
    depth: int
    heads: int
    patch: int
    distilled: bool = False


BACKBONES: dict[str, dict[str, ViT]] = {
    "vit_base": {"paper": ViT(768, 12, 12, 16), "tiny": ViT(48, 2, 3, 16)},
    "vit_small": {"paper": ViT(384, 12, 6, 16), "tiny": ViT(48, 2, 3, 16)},
    "vit_tiny": {"paper": ViT(192, 12, 3, 16), "tiny": ViT(48, 2, 3, 16)},
    "deit_base_distilled": {"paper": ViT(768, 12, 12, 16, True), "tiny": ViT(48, 2, 3, 16, True)},
    "deit_small_distilled": {"paper": ViT(384, 12, 6, 16, True), "tiny": ViT(48, 2, 3, 16, True)},
    "deit_tiny_distilled": {"paper": ViT(192, 12, 3, 16, True), "tiny": ViT(48, 2, 3, 16, True)},
    "vit_digits": {"paper": ViT(64, 3, 4, 8), "tiny": ViT(48, 2, 3, 8)},
}


@dataclass(frozen=True)
class Target:
    """A class named by module and name, so that it can be found without importing it.

    Args:
        module: dotted module.
        name: class in it.
        classes: classes of a data set as published; 0 for a task.
        counts: samples of each split as published.
    """

    module: str
    name: str
    classes: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.module, self.name))


TASKS: dict[str, Target] = {
    "classification": Target("dna_suite.tasks.classification", "ImageClassification"),
}

DATASETS: dict[str, dict[str, Target]] = {
    "classification": {
        "digits": Target("dna_suite.data.digits", "Digits", 10, {"train": 1257, "val": 180, "test": 360}),
        "imagenet": Target("dna_suite.data.imagenet", "ImageNet", 1000, {"train": 1_281_167, "val": 50_000, "test": 50_000}),
    },
}


@dataclass(frozen=True)
class Metric:
    """One metric as tables show it; its name follows the split, as in val/top1.

    Args:
        meaning: what is measured.
        percent: the value is a fraction that tables show times 100; other values are shown as they are.
        higher_is_better: direction of a gain.
    """

    meaning: str
    percent: bool = True
    higher_is_better: bool = True


METRICS: dict[str, Metric] = {
    "top1": Metric("share of samples whose likeliest class is the right one"),
    "top5": Metric("share of samples whose right class is among the five likeliest"),
    "loss": Metric("mean cross-entropy, without label smoothing", percent=False, higher_is_better=False),
}
