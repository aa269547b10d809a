"""Sparse patterns by name, with those that are alike in all heads or drawn at random."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from dna_suite.attention.fibonacci import fibonacci_terms
from dna_suite.attention.fibottention import Fibottention
from dna_suite.attention.options import pattern_options
from dna_suite.attention.pattern import DiagonalPattern, Distances, Pattern
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec


class UniformPattern(DiagonalPattern):
    """A pattern with the same distances in every head."""

    def terms(self, patches: int) -> list[int]:
        """The distances, in any order."""
        raise NotImplementedError

    def distances(self, patches: int) -> Distances:
        """The same distances for each head.

        Raises:
            DnaError: none is below the number of patches.
        """
        kept = tuple(sorted({term for term in self.terms(patches) if term < patches}))
        if not kept:
            raise DnaError(f"{type(self).__name__.lower()} pattern: no kept distance is below {patches}, the number of patches")
        return (kept,) * self.heads


class Longformer(UniformPattern):
    """A band around the diagonal (Longformer, as Fibottention's comparison makes it visual).

    Args:
        window: longest kept distance.
        self_pairs: keep the diagonal itself.
    """

    def __init__(self, *args: Any, window: int = 1, self_pairs: bool = True, **common: Any) -> None:
        super().__init__(*args, **common)
        self.window, self.self_pairs = window, self_pairs
        _refuse_nothing(self_pairs or window >= 1, "window", window, "1 is needed without self_pairs")

    def terms(self, patches: int) -> list[int]:
        """0 or 1 to `window`."""
        return list(range(0 if self.self_pairs else 1, min(self.window, patches) + 1))


class Dilated(UniformPattern):
    """Multiples of one distance (dilated window).

    Args:
        dilation: the distance.
        window: longest kept distance.
        self_pairs: keep the diagonal too.
    """

    def __init__(self, *args: Any, dilation: int = 2, window: int = 2, self_pairs: bool = False, **common: Any) -> None:
        super().__init__(*args, **common)
        self.dilation, self.window, self.self_pairs = dilation, window, self_pairs
        _refuse_nothing(self_pairs or window >= dilation, "window", window, f"the dilation {dilation} is needed")

    def terms(self, patches: int) -> list[int]:
        """Multiples of `dilation` up to `window`."""
        first = 0 if self.self_pairs else self.dilation
        return list(range(first, min(self.window, patches) + 1, self.dilation))


class Exponential(UniformPattern):
    """Powers of a base.

    Args:
        base: of the powers.
        window: longest kept distance; 0 is a third of the patches, and at least 1.
    """

    def __init__(self, *args: Any, base: int = 2, window: int = 0, **common: Any) -> None:
        super().__init__(*args, **common)
        self.base, self.window = base, window

    def terms(self, patches: int) -> list[int]:
        """Powers of `base` up to `window`."""
        window = min(self.window or max(patches // 3, 1), patches)
        terms = [1]
        while terms[-1] * self.base <= window:
            terms.append(terms[-1] * self.base)
        return terms


class Fibonacci(UniformPattern):
    """1, 2, 3, 5, 8, ... in every head.

    Args:
        window: longest kept distance; 0 is all.
    """

    def __init__(self, *args: Any, window: int = 0, **common: Any) -> None:
        super().__init__(*args, **common)
        self.window = window

    def terms(self, patches: int) -> list[int]:
        """1, 2, 3, 5, 8, ... up to `window`."""
        return fibonacci_terms(1, 2, min(self.window or patches, patches))


class DrawnPattern(Pattern):
    """A pattern with pairs drawn once for each head, from a generator of its own.

    Args:
        seed: of the draw, together with the layer.
    """

    def __init__(self, *args: Any, seed: int = 0, **common: Any) -> None:
        super().__init__(*args, **common)
        self.seed = seed

    def draw(self, patches: int, generator: torch.Generator) -> Tensor:
        """Kept pairs of patches, [heads, patches, patches] on the CPU."""
        raise NotImplementedError

    def _make_mask(self, tokens: int, device: torch.device) -> Tensor:
        patches = self.count_patches(tokens)
        with torch.device("cpu"):
            # torch reads 32 bits of a seed.
            bits = random.Random(f"{self.seed} {self.layer}").getrandbits(32)
            generator = torch.Generator().manual_seed(bits)
            mask = torch.ones(1, self.heads, tokens, tokens, dtype=torch.bool)
            mask[0, :, self.prefix :, self.prefix :] = self.draw(patches, generator)
            bare = (~mask[0].any(dim=-1)).any(dim=-1).nonzero().flatten() + 1
        self._refuse_empty_rows(bare.tolist(), patches)
        return mask.to(device)


class BigBird(DrawnPattern):
    """A band around the diagonal, and random keys in every row (BigBird, as Fibottention's comparison makes it visual).

    Args:
        window: longest distance of the band, which holds the diagonal.
        random_keys: keys outside the band, drawn without repeats for each row, head and layer.
    """

    def __init__(self, *args: Any, window: int = 1, random_keys: int = 1, **common: Any) -> None:
        super().__init__(*args, **common)
        self.window, self.random_keys = window, random_keys

    def draw(self, patches: int, generator: torch.Generator) -> Tensor:
        """Kept pairs of patches, [heads, patches, patches].

        Raises:
            DnaError: the band is wider than the patches, or a row has fewer free keys than are to be drawn.
        """
        if self.window >= patches:
            raise DnaError(f"attention.options.window {self.window} with {patches} patches: from 0 to {patches - 1}")
        place = torch.arange(patches)
        band = (place[:, None] - place).abs() <= self.window
        free = patches - int(band.sum(dim=-1).max())
        if self.random_keys > free:
            raise DnaError(
                f"attention.options.random_keys {self.random_keys} with {patches} patches, window {self.window}: from 0 to {free}"
            )
        ranks = torch.rand(self.heads, patches, patches, generator=generator, dtype=torch.float64).masked_fill(band, -1.0)
        drawn = torch.zeros(self.heads, patches, patches, dtype=torch.bool)
        return drawn.scatter_(-1, ranks.topk(self.random_keys, dim=-1).indices, True) | band


class Random(DrawnPattern):
    """Pairs drawn without repeats from all pairs: exactly as many in every head, not in every row.

    Args:
        keep: share of pairs.
    """

    def __init__(self, *args: Any, keep: float = 0.0148, **common: Any) -> None:
        super().__init__(*args, **common)
        self.keep = keep

    def draw(self, patches: int, generator: torch.Generator) -> Tensor:
        """Kept pairs of patches, [heads, patches, patches].

        Raises:
            DnaError: no pair is kept.
        """
        pairs = patches * patches
        count = round(self.keep * pairs)
        if count < 1:
            raise DnaError(f"attention.options.keep {self.keep} keeps none of {pairs} pairs: at least {1 / pairs:.2g} is needed")
        drawn = torch.zeros(self.heads, pairs, dtype=torch.bool)
        for row in drawn:
            row[torch.randperm(pairs, generator=generator)[:count]] = True
        return drawn.view(self.heads, patches, patches)


PATTERN_CLASSES: dict[str, type[Pattern]] = {
    "fibottention": Fibottention,
    "longformer": Longformer,
    "bigbird": BigBird,
    "random": Random,
    "dilated": Dilated,
    "exponential": Exponential,
    "fibonacci": Fibonacci,
}


def build_pattern(spec: AttentionSpec, *, heads: int, layer: int | None, prefix: int = 0) -> Pattern | None:
    """The pattern of one layer that a spec describes; None where it is dense.

    Args:
        spec: pattern and options.
        heads: attention heads.
        layer: index of the layer.
        prefix: tokens before the patches.

    Raises:
        DnaError: the layer index is missing, or an option is out of range.
        UnknownName: an option is not one of the words that it may be.
    """
    if spec.pattern is None:
        return None
    if layer is None:
        raise DnaError(f"pattern {spec.pattern!r} differs from layer to layer: build_attention needs layer=")
    return PATTERN_CLASSES[spec.pattern](heads, layer, prefix, **pattern_options(spec))


def _refuse_nothing(keeps: bool, option: str, value: int, needed: str) -> None:
    if not keeps:
        raise DnaError(f"attention.options.{option} {value} keeps no pair: at least {needed}")
