"""The interface of a sparse pattern: which patches each head of one layer may attend to."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from dna_suite.attention.diagonal import Diagonals, diagonal_mask
from dna_suite.errors import DnaError

Distances = tuple[tuple[int, ...], ...]

KEPT_MASKS = 4


class Pattern:
    """The support of one layer's heads.

    Prefix tokens attend to all tokens and all tokens attend to them. What is kept follows from the token count of a call, the
    seed and the layer alone: training, evaluation, every process and a resumed run see the same, and no global generator is read.

    Args:
        heads: attention heads.
        layer: index of the layer.
        prefix: tokens before the patches, such as class and distillation tokens.
        mask_mode: a pair that is not kept leaves the softmax, or stays in it with logit 0.
        engine: see `engines.choose_engine`.
    """

    diagonal: ClassVar[bool] = False

    def __init__(
        self,
        heads: int,
        layer: int,
        prefix: int,
        mask_mode: Literal["neg_inf", "zero_logit"] = "neg_inf",
        engine: Literal["auto", "dense", "offsets"] = "auto",
    ) -> None:
        if heads < 1 or prefix < 0 or layer < 0:
            raise DnaError(f"heads {heads}, prefix {prefix}, layer {layer}: at least 1, 0 and 0 are needed")
        self.heads, self.layer, self.prefix = heads, layer, prefix
        self.mask_mode, self.engine = mask_mode, engine
        self._masks: dict[tuple[int, torch.device], Tensor] = {}

    def count_patches(self, tokens: int) -> int:
        """Patches among `tokens` tokens.

        Raises:
            DnaError: there is none.
        """
        if tokens <= self.prefix:
            raise DnaError(f"{tokens} tokens, {self.prefix} of them prefix tokens: a pattern needs at least one patch")
        return tokens - self.prefix

    def count_pairs(self, tokens: int) -> int:
        """Kept pairs of query and key over all heads, prefix included."""
        # Not through the cache of masks: counting a model on the meta device must leave nothing behind.
        return int(self._make_mask(tokens, torch.device("cpu")).expand(1, self.heads, -1, -1).sum())

    def mask(self, tokens: int, device: torch.device) -> Tensor:
        """True at kept pairs, [1, heads, tokens, tokens], or [1, 1, tokens, tokens] where all heads keep the same.

        Raises:
            DnaError: the pattern cannot stand on so few tokens.
        """
        key = tokens, device
        if key not in self._masks:
            # Not an inference tensor: a mask made in validation serves training too.
            with torch.inference_mode(False):
                made = self._make_mask(tokens, device)
            while len(self._masks) >= KEPT_MASKS:
                del self._masks[next(iter(self._masks))]
            self._masks[key] = made
        return self._masks[key]

    def _make_mask(self, tokens: int, device: torch.device) -> Tensor:
        raise NotImplementedError

    def _refuse_empty_rows(self, heads: list[int], patches: int) -> None:
        """Refuses rows that keep nothing; the softmax of no logit is undefined, and the kernels disagree about it."""
        if heads and self.prefix == 0 and self.mask_mode == "neg_inf":
            which = ", ".join(str(head) for head in heads)
            raise DnaError(
                f"{type(self).__name__.lower()} pattern, layer {self.layer}: {patches} patches leave queries of head {which} "
                "without any key, and there is no class token; more patches, wider windows or fewer heads are needed"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Without the masks: a copied or sent model makes its own."""
        return {**self.__dict__, "_masks": {}}


class DiagonalPattern(Pattern):
    """A pattern that keeps pairs of patches by their distance |query - key| in reading order."""

    diagonal = True

    def distances(self, patches: int) -> Distances:
        """The kept distances of each head, rising, each once, below `patches`."""
        raise NotImplementedError

    def diagonals(self, tokens: int) -> Diagonals:
        """The kept pairs of a call with `tokens` tokens.

        Raises:
            DnaError: the pattern cannot stand on so few tokens.
        """
        patches = self.count_patches(tokens)
        distances = self.distances(patches)
        # The middle rows reach only half as far: a head whose shortest distance is longer leaves them empty.
        bare = [head for head, kept in enumerate(distances, 1) if not kept or 2 * kept[0] > patches]
        self._refuse_empty_rows(bare, patches)
        return Diagonals(distances, self.prefix, patches)

    def count_pairs(self, tokens: int) -> int:
        """Kept pairs of query and key over all heads, prefix included."""
        return self.diagonals(tokens).pairs

    def _make_mask(self, tokens: int, device: torch.device) -> Tensor:
        return diagonal_mask(self.diagonals(tokens), device)
