"""The names a recipe may use, as plain data readable without torch: operators, patterns, backbones, tasks, data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dna_suite.entry_points import Extended


@dataclass(frozen=True)
class Cost:
    """What an operator costs.

    Args:
        multiply_adds: of a whole ViT-B at 224 pixels, over softmax's.
        parameters: of one of its layers, over softmax's.
        engine: what computes it on the fused path.
        keeps_map: when the fused path keeps an N x N map of every head for the backward pass: "always", "dropout" of maps, or a
            "learned bias", whose own gradient has that size.
        written_out: tokens up to which a training step on a CPU runs written out, since it is faster there.
    """

    multiply_adds: float
    parameters: float
    engine: str
    keeps_map: tuple[str, ...] = ("dropout", "learned bias")
    written_out: int = 128


@dataclass(frozen=True)
class Operator:
    """One attention operator as `dna list` shows it.

    Args:
        streams: the projections that the layer makes, in order.
        formula: the equation; s is softmax, s^ softmin, a the learned alpha of each head.
        source: where the operator comes from.
        options: option name -> default value; the default's type is the option's type.
        implementation: "module:class" of an operator from another package; ours are found by their names.
        cost: what it costs; None where the package does not say.
    """

    streams: tuple[str, ...]
    formula: str
    source: str
    options: Mapping[str, object] = field(default_factory=dict)
    implementation: str = ""
    cost: Cost | None = None


# Tiles make the gradient of a learned bias piece by piece.
TILED = ("dropout", "learned bias on CUDA")

OUR_OPERATORS: dict[str, Operator] = {
    "softmax": Operator(("q", "k", "v"), "s(Q K') V", "Vaswani et al. 2017; timm Attention", cost=Cost(1.0, 1.0, "SDPA")),
    "softmax-wide": Operator(
        ("q", "k", "v"), "s(Q K') V, Q K V 1.5 times as wide", "DnA table 12, ViT-B‡", cost=Cost(1.179, 1.5, "SDPA")
    ),
    "softmax-value": Operator(
        ("q", "k", "v"),
        "s(Q K') V, V twice as wide",
        "DnA table 12, ViT-B†",
        cost=Cost(1.179, 1.5, "tiles on a CPU, else SDPA with Q and K padded to the width of V", TILED, 208),
    ),
    "dna": Operator(
        ("q", "q_neg", "k", "v", "v_neg"),
        "s(Q+ K') V+ + a s^(Q- K') V-",
        "DnA section 3.2, Algorithm 1",
        {"alpha": 0.5},
        cost=Cost(1.199, 1.5, "SDPA, two calls"),
    ),
    "dna-q": Operator(
        ("q", "q_neg", "k", "v"),
        "(s(Q+ K') + a s^(Q- K')) V",
        "DnA appendix C.5, Q±V",
        {"alpha": 0.5},
        cost=Cost(1.1, 1.25, "SDPA, one call of 2N queries"),
    ),
    "dna-v": Operator(
        ("q", "k", "v", "v_neg"),
        "s(Q K') V+ + a s^(Q K') V-",
        "DnA appendix C.5, QV±",
        {"alpha": 0.5},
        cost=Cost(1.1, 1.25, "SDPA, two calls", written_out=208),
    ),
    "dna-shared": Operator(
        ("q", "k", "v"),
        "(s(Q K') + a s^(Q K')) V",
        "DnA appendix C.5, A± with alpha",
        {"alpha": 0.5},
        cost=Cost(1.0, 1.0, "tiles on a CPU, else SDPA, one call of 2N queries", TILED),
    ),
    "dna-shared-plain": Operator(
        ("q", "k", "v"),
        "(s(Q K') + s^(Q K')) V",
        "DnA appendix C.5, A±",
        cost=Cost(1.0, 1.0, "tiles on a CPU, else SDPA, one call of 2N queries", TILED),
    ),
    "differential": Operator(
        ("q", "k", "v"),
        "RMS((s(Q1 K1') - l s(Q2 K2')) V)",
        "Ye et al. 2024; timm DiffAttention",
        {"plain": False},
        cost=Cost(1.0, 1.0, "SDPA, two calls, the other half of Q zero"),
    ),
    "cog": Operator(
        ("q", "k", "v"),
        "sign(Q K') s(abs Q K') V",
        "Lv et al. 2024",
        cost=Cost(1.0, 1.0, "tiles, made again in the backward pass", ("dropout",)),
    ),
}

OPERATORS: Mapping[str, Operator] = Extended("dna_suite.operators", OUR_OPERATORS, Operator)


@dataclass(frozen=True)
class Pattern:
    """One sparse pattern as `dna list` shows it: which patches a head may attend to.

    Args:
        formula: the kept pairs of patches i, j, |i - j| in patches in reading order; N patches, heads h = 1..H.
        source: where the pattern and its defaults come from.
        options: option name -> default value; the default's type is the option's type.
        diagonal: kept pairs depend on |i - j| alone, so that the engine "offsets" can run them.
    """

    formula: str
    source: str
    options: Mapping[str, object] = field(default_factory=dict)
    diagonal: bool = True


ENGINE = {"mask_mode": "neg_inf", "engine": "auto"}

PATTERNS: dict[str, Pattern] = {
    "fibottention": Pattern(
        "|i - j| in row h of the Wythoff array, at most w_h (window_min to window_max)",
        "Fibottention (arXiv 2406.19391)",
        {
            "variant": "wythoff",
            "window_min": 5,
            "window_max": 0,
            "shuffle": True,
            "seed": 0,
            "empty_heads": "refuse",
            "released_edges": False,
            **ENGINE,
        },
    ),
    "longformer": Pattern(
        "|i - j| <= window", "Longformer, as in Fibottention's comparison", {"window": 1, "self_pairs": True, **ENGINE}
    ),
    "bigbird": Pattern(
        "|i - j| <= window, and random_keys more in each row",
        "BigBird, as in Fibottention's comparison",
        {"window": 1, "random_keys": 1, "seed": 0, "mask_mode": "neg_inf"},
        diagonal=False,
    ),
    "random": Pattern(
        "round(keep N^2) pairs, drawn once for each head and layer",
        "Fibottention's comparison",
        {"keep": 0.0148, "seed": 0, "mask_mode": "neg_inf"},
        diagonal=False,
    ),
    "dilated": Pattern(
        "|i - j| in {c, 2c, 3c, ...}, at most window",
        "Fibottention's comparison, dilated window",
        {"dilation": 2, "window": 2, "self_pairs": False, **ENGINE},
    ),
    "exponential": Pattern(
        "|i - j| in {1, b, b^2, ...}, at most window (0: N // 3)",
        "Fibottention, dilation sequences, after LongNet",
        {"base": 2, "window": 0, **ENGINE},
    ),
    "fibonacci": Pattern(
        "|i - j| in {1, 2, 3, 5, 8, ...}, at most window (0: N)",
        "Fibottention, simple Fibonacci",
        {"window": 0, **ENGINE},
    ),
}

# The words that an option of a pattern may be, and the numbers between which it may lie.
CHOICES: dict[str, tuple[str, ...]] = {
    "variant": ("wythoff", "wythoff_modified", "literal"),
    "mask_mode": ("neg_inf", "zero_logit"),
    "empty_heads": ("refuse", "prefix", "modified"),
    "engine": ("auto", "dense", "offsets"),
}
LIMITS: dict[str, tuple[float, float]] = {
    "window_min": (1, 2**31),
    "window_max": (0, 2**31),
    "window": (0, 2**31),
    "dilation": (1, 2**31),
    "base": (2, 2**31),
    "random_keys": (0, 2**31),
    "keep": (0, 1),
    "seed": (0, 2**31),
}


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


@dataclass(frozen=True)
class Swin:
    """Shape of a Swin transformer: stages of windowed attention, each at half the side and twice the width of the one before.

    Args:
        dim: width of a token in the first stage.
        depths: blocks of each stage.
        heads: attention heads in each block of the first stage; they double as the width does.
        patch: side of a patch, pixels.
        window: side of a window, patches.
    """

    dim: int
    depths: tuple[int, ...]
    heads: int
    patch: int = 4
    window: int = 7

    @property
    def depth(self) -> int:
        """Blocks of all stages."""
        return sum(self.depths)


@dataclass(frozen=True)
class ConViT:
    """Shape of a ConViT.

    Args:
        dim: width of a token.
        depth: number of blocks.
        heads: attention heads in each block.
        patch: side of a patch, pixels.
        local: blocks with gated positional attention, from the first on; the class token joins after them.
    """

    dim: int
    depth: int
    heads: int
    patch: int = 16
    local: int = 10


BACKBONES: dict[str, dict[str, ViT | Swin | ConViT]] = {
    "vit_base": {"paper": ViT(768, 12, 12, 16), "tiny": ViT(48, 2, 3, 16)},
    "vit_small": {"paper": ViT(384, 12, 6, 16), "tiny": ViT(48, 2, 3, 16)},
    "vit_tiny": {"paper": ViT(192, 12, 3, 16), "tiny": ViT(48, 2, 3, 16)},
    "deit_base_distilled": {"paper": ViT(768, 12, 12, 16, True), "tiny": ViT(48, 2, 3, 16, True)},
    "deit_small_distilled": {"paper": ViT(384, 12, 6, 16, True), "tiny": ViT(48, 2, 3, 16, True)},
    "deit_tiny_distilled": {"paper": ViT(192, 12, 3, 16, True), "tiny": ViT(48, 2, 3, 16, True)},
    "vit_digits": {"paper": ViT(64, 3, 4, 8), "tiny": ViT(48, 2, 3, 8)},
    "swin_base": {"paper": Swin(128, (2, 2, 18, 2), 4), "tiny": Swin(24, (2, 1), 3, patch=8)},
    "swin_tiny": {"paper": Swin(96, (2, 2, 6, 2), 3), "tiny": Swin(24, (2, 1), 3, patch=8)},
    "convit_base": {"paper": ConViT(768, 12, 16), "tiny": ConViT(48, 2, 4, local=1)},
    "convit_small": {"paper": ConViT(432, 12, 9), "tiny": ConViT(48, 2, 4, local=1)},
    "convit_tiny": {"paper": ConViT(192, 12, 4), "tiny": ConViT(48, 2, 4, local=1)},
}


@dataclass(frozen=True)
class Target:
    """A class named by module and name, so that it can be found without importing it.

    Args:
        module: dotted module.
        name: class in it.
        classes: classes of a data set as published; 0 for a task.
        counts: samples of each split as published; empty where the recipe decides what is read.
        trains: a task that trains; others only test what was trained elsewhere.
    """

    module: str
    name: str
    classes: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    trains: bool = True

    def __hash__(self) -> int:
        return hash((self.module, self.name))


TASKS: dict[str, Target] = {
    "classification": Target("dna_suite.tasks.classification", "ImageClassification"),
    "transfer": Target("dna_suite.tasks.transfer", "Transfer"),
    "robustness": Target("dna_suite.tasks.robustness", "Robustness", trains=False),
}

LABELLED_PICTURES: dict[str, Target] = {
    "digits": Target("dna_suite.data.digits", "Digits", 10, {"train": 1257, "val": 180, "test": 360}),
    "imagenet": Target("dna_suite.data.imagenet", "ImageNet", 1000, {"train": 1_281_167, "val": 50_000, "test": 50_000}),
    "cifar10": Target("dna_suite.data.cifar", "CIFAR10", 10, {"train": 50_000, "test": 10_000}),
    "cifar100": Target("dna_suite.data.cifar", "CIFAR100", 100, {"train": 50_000, "test": 10_000}),
    "cars": Target("dna_suite.data.cars", "Cars", 196, {"train": 8144, "test": 8041}),
    "tiny_imagenet": Target(
        "dna_suite.data.tiny_imagenet", "TinyImageNet", 200, {"train": 100_000, "val": 10_000, "test": 10_000}
    ),
    "fashion_mnist": Target("dna_suite.data.fashion_mnist", "FashionMNIST", 10, {"train": 60_000, "test": 10_000}),
}

DATASETS: dict[str, dict[str, Target]] = {
    "classification": LABELLED_PICTURES,
    "transfer": LABELLED_PICTURES,
    "robustness": {"robustness": Target("dna_suite.data.robustness", "RobustnessSets", 1000)},
}


@dataclass(frozen=True)
class Metric:
    """One metric as tables show it; its name follows the split, as in val/top1.

    Args:
        meaning: what is measured.
        percent: the value is a fraction that tables show times 100; other values are shown as they are.
        higher_is_better: direction of a gain; None for what no model changes.
    """

    meaning: str
    percent: bool = True
    higher_is_better: bool | None = True


METRICS: dict[str, Metric] = {
    "top1": Metric("share of samples whose likeliest class is the right one"),
    "top1_all_classes": Metric("top1 among all classes of the model, where top1 is among those of the set"),
    "top5": Metric("share of samples whose right class is among the five likeliest"),
    "mean_class_accuracy": Metric("mean over the classes of the share of right answers; classes without samples are left out"),
    "rmsce": Metric(
        "root mean square of confidence less accuracy over bins of 100 samples; the most confident bin is left out, as published",
        higher_is_better=False,
    ),
    "rmsce_all_bins": Metric("rmsce with the most confident bin", higher_is_better=False),
    "aurra": Metric("area under the response-rate curve: mean accuracy among the k most confident samples over all k"),
    "fpr95": Metric(
        "share of samples of known classes taken for unknown where 95 % of the unknown are found", higher_is_better=False
    ),
    "auroc": Metric("chance that a sample of an unknown class is less confident than one of a known class"),
    "aupr": Metric("average precision of finding samples of unknown classes by low confidence; chance is aupr_chance"),
    "aupr_chance": Metric("share of samples of unknown classes, which aupr is without information", higher_is_better=None),
    "mce": Metric(
        "error on corrupted pictures over AlexNet's, mean over 15 kinds of the mean over 5 severities", higher_is_better=False
    ),
    "loss": Metric("mean cross-entropy, without label smoothing", percent=False, higher_is_better=False),
}
