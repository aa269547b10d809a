"""Values of every sample, for scores that are not sums over samples."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat


class KeptSamples(Metric):
    """Keeps some values of each counted sample; neither batches nor processes nor their order change a digit.

    Args:
        names: of the values, which become states that are joined across processes.
    """

    full_state_update = False

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = ("ids", *names)
        for name in self.names:
            self.add_state(name, [], dist_reduce_fx="cat")

    def keep(self, ids: Tensor, counted: Tensor, **values: Tensor) -> None:
        """Add a batch.

        Args:
            ids: int64 [n], no two samples share one.
            counted: bool [n]; rows that are False leave no trace.
            values: [n] for each name; bool is kept as 0 and 1.
        """
        for name in self.names:
            rows = ids if name == "ids" else values[name]
            assert rows.shape == counted.shape, f"{name}: {tuple(rows.shape)} values for {tuple(counted.shape)} marks"
            getattr(self, name).append((rows.to(torch.uint8) if rows.dtype == torch.bool else rows).detach()[counted])

    def kept(self) -> tuple[np.ndarray, ...]:
        """The ids and then the values by name, in ascending order of the ids; empty where nothing was counted."""
        states = [getattr(self, name) for name in self.names]
        columns = [dim_zero_cat(state).cpu().numpy() if len(state) else np.empty(0) for state in states]
        order = np.argsort(columns[0])
        ids, *values = (column[order] for column in columns)
        assert (ids[1:] != ids[:-1]).all(), "a sample is counted once"
        return ids, *values
