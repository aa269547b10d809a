"""What signals do to loader workers: nothing, so that the training process can stop at a step border."""

from __future__ import annotations

import ctypes
import os
import signal
from multiprocessing.sharedctypes import RawValue
from multiprocessing.util import Finalize
from types import FrameType


class ServeOn:
    """A worker's start function: TERM and INT, which terminals and schedulers send to all processes of a job, are ignored.

    A killed worker would end the run in the middle of a step, with torch's error in place of a checkpoint. When the process that
    made the loader ends, it sends TERM to its workers and waits for them; it sets a flag before that, and then TERM ends them.
    """

    def __init__(self) -> None:
        self.over = RawValue(ctypes.c_bool, False)
        # Runs at the end of the process before multiprocessing ends the workers (priority 0 and above), or with the loader.
        Finalize(self, setattr, args=(self.over, "value", True), exitpriority=10)

    def __call__(self, worker: int) -> None:
        """Set the handlers of a worker."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self.end)

    def end(self, number: int, frame: FrameType | None) -> None:
        """End the worker, if its parent is ending."""
        if self.over.value:
            os._exit(0)
