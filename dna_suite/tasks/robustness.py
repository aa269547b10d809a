"""Robustness: one classifier on ImageNet-A, -R and -O and other sets, by the protocol that the published numbers follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dna_suite.data.base import Data
from dna_suite.data.robustness import RobustnessSets
from dna_suite.errors import DnaError
from dna_suite.metrics.robustness import KeptResults, PartResults, score_parts
from dna_suite.tasks.classification import ImageClassification


class Robustness(ImageClassification):
    """Tests a model that image classification trained; there is no training part.

    The logits of a set's classes are selected first, 200 of A, R and O, and softmax is over those: a picture counts as right
    where the largest of them is its folder's, and the largest probability is its confidence. Whether the largest of all logits
    is its folder's is counted beside that. The constructor's arguments are those of `ImageClassification`, so that a run's model
    can be built.

    Source: DnA, Table 4 (ImageNet-A) and Table 10 (ImageNet-O and -R); the protocol of the sets' authors. Whether the choice
        among 200 is legitimate is disputed (hendrycks/natural-adv-examples#15), so both are told.
    """

    name = "robustness"
    part_results: PartResults

    def setup(self, stage: str) -> None:
        """Take over what the data decides; a test keeps what came out for each picture.

        Raises:
            DnaError: the trainer would leave pictures out.
        """
        self.adopt(self.data)
        limit = self.trainer.limit_test_batches
        if limit != 1.0:
            raise DnaError(f"trainer.limit_test_batches {limit}: these sets are tested whole: leave it out")
        self.kept = KeptResults()

    def adopt(self, data: Data) -> None:
        """Classes, the sets' columns, picture size and normalisation come from the data."""
        super().adopt(data)
        assert isinstance(data, RobustnessSets)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Keep what came out for each picture of one batch."""
        data = self.data
        assert isinstance(data, RobustnessSets)
        logits, index = self(batch["image"]).float(), batch["index"].cpu().numpy()
        right = torch.from_numpy(data.parts.right_classes(index)).to(logits.device)
        sets = data.parts.set_of(index)
        for number in np.unique(sets).tolist():
            rows = torch.from_numpy(sets == number).to(logits.device)
            columns = torch.from_numpy(data.columns[data.sets[number]]).to(logits.device)
            self.kept.update(logits[rows], right[rows], columns, batch["index"][rows], batch["counted"][rows])

    def on_test_epoch_end(self) -> None:
        """Score the sets over every picture once."""
        data = self.data
        assert isinstance(data, RobustnessSets)
        self.part_results = PartResults(data.parts.names, data.parts.of, self.kept.compute())
        self.kept.reset()
        assert len(self.part_results.images.sample) == len(data.parts.of), "every picture of the sets is there"
        self.results = {f"test/{name}": value for name, value in score_parts(self.part_results).items()}
