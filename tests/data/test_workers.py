import multiprocessing
import os
import signal
import time

import pytest
from torch.utils.data import DataLoader, Dataset

from dna_suite.data.workers import ServeOn


class Pids(Dataset):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return os.getpid()


def loader() -> DataLoader:
    return DataLoader(Pids(), num_workers=1, worker_init_fn=ServeOn())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_worker_goes_on_after_a_signal_to_the_whole_job(number):
    batches = iter(loader())
    worker = int(next(batches))
    for _ in range(19):
        os.kill(worker, number)
        assert int(next(batches)) == worker
    with pytest.raises(StopIteration):
        next(batches)


def leave_with_a_worker(pids) -> None:
    global kept  # noqa: PLW0603 - what the end of a process finds alive
    kept = iter(loader())
    pids.put(int(next(kept)))


def test_worker_ends_with_its_parent():
    context = multiprocessing.get_context("fork")
    pids = context.SimpleQueue()
    parent = context.Process(target=leave_with_a_worker, args=(pids,))
    parent.start()
    worker = pids.get()
    parent.join(20)
    assert parent.exitcode == 0
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the worker is alive 5 s after its parent")
