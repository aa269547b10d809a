"""Lines of the libraries that the suite replaces or has decided about."""

from __future__ import annotations

import logging
import warnings


def quieten() -> None:
    """Drop Lightning's lines about things that the suite shows itself or has decided."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # The data are resident or the recipe says how many workers there are.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # The log interval is the recipe's own affair.
    warnings.filterwarnings("ignore", message=".*number of training batches .* is smaller than the logging interval.*")
    # The sampler continues by position; Lightning cannot know that (data/order.py).
    warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
    # The network is built before the average of its weights, which shards nothing (runs/weight_average.py).
    warnings.filterwarnings("ignore", message=".*WeightAveraging callback with a model that overrides.*")
    # Tests and validations read the average of the weights and need nothing else of it.
    warnings.filterwarnings("ignore", message=".*callbacks used to create the checkpoint need to be provided.*")
    # A frozen backbone is in evaluation mode on purpose (tasks/transfer.py).
    warnings.filterwarnings("ignore", message=".*module\\(s\\) in eval mode at the start of training.*")
    # The recipe comes from the command line that the suite has read itself.
    warnings.filterwarnings("ignore", message=".*args parameter is intended to run from within Python.*")
    # Scores are global before they are logged (metrics/classification.py).
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*when logging on epoch level in distributed setting.*")
    # Without a holdout a set may have no validation part; a note says so (data/base.py).
    warnings.filterwarnings("ignore", message=".*Total length of `list` across ranks is zero.*")
    # torch tells Lightning, not the user.
    warnings.filterwarnings("ignore", message=".*treespec, LeafSpec.*")
    # jsonargparse tells Lightning, not the user, about calls that go in its version 5 (Lightning#21906).
    warnings.filterwarnings("ignore", module="jsonargparse.*", category=DeprecationWarning)
