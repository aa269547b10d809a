import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from dna_suite.data.batches import Lazily, collate, leave_out_skipped
from dna_suite.data.order import Counted


def sample(index: int, **more) -> dict:
    image = torch.full((4, 2, 3), index, dtype=torch.uint8).permute(2, 0, 1)
    return {"image": image, "label": index % 3, "index": index, "counted": True, **more}


def skipped(index: int) -> dict:
    return sample(index, counted=False, skipped=f"{index}.jpg")


def test_a_batch_is_tensors_lists_and_a_count():
    batch = collate([sample(4, path="a"), sample(5, path="b", counted=False)])
    assert batch["image"].shape == (2, 3, 4, 2)
    assert batch["image"][:, 0, 0, 0].tolist() == [4, 5]
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    assert (batch["label"].dtype, batch["label"].tolist()) == (torch.int64, [1, 2])
    assert (batch["counted"].dtype, batch["counted"].tolist()) == (torch.bool, [True, False])
    assert batch["path"] == ["a", "b"]
    assert batch["present"] == 1
    assert "skipped" not in batch


def test_evaluation_keeps_the_row_of_a_skipped_sample():
    batch = collate([sample(0), skipped(1)])
    assert (batch["index"].tolist(), batch["present"], batch["skipped"]) == ([0, 1], 1, ["1.jpg"])


def test_training_leaves_a_skipped_sample_out():
    batch = leave_out_skipped([sample(0), skipped(1), sample(2)])
    assert (batch["index"].tolist(), batch["present"], batch["skipped"]) == ([0, 2], 2, ["1.jpg"])


def test_a_training_batch_is_never_empty():
    batch = leave_out_skipped([skipped(1), skipped(2)])
    assert (batch["index"].tolist(), batch["present"], batch["skipped"]) == ([2], 0, ["1.jpg", "2.jpg"])


def test_whole_batches_pass():
    batch = {"image": torch.zeros(1)}
    assert collate(batch) is batch
    assert leave_out_skipped(batch) is batch


def test_a_picture_goes_into_its_batch_before_the_next_is_made():
    shown = []

    def make(index: int) -> dict:
        image = torch.full((4, 2, 3), index, dtype=torch.uint8)
        # A picture that is changed afterwards has been copied by then.
        if shown:
            shown[-1].fill_(255)
        shown.append(image)
        return {"image": image.permute(2, 0, 1), "index": index, "counted": True}

    batch = collate(Lazily(make, [7, 8, 9]))
    assert batch["image"][:, 0, 0, 0].tolist() == [7, 8, 9]
    assert (batch["index"].tolist(), batch["present"]) == ([7, 8, 9], 3)


class Pictures(Dataset):
    def __getitem__(self, index: int) -> dict:
        return {"image": torch.full((3, 8, 8), index, dtype=torch.uint8), "label": index}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_worker_fills_memory_that_both_processes_see(workers):
    keys = [[(0, True), (1, True), (2, False)], [(3, True)]]
    loader = DataLoader(Counted(Pictures()), batch_sampler=keys, collate_fn=collate, num_workers=workers)
    batches = list(loader)
    assert [batch["image"].is_shared() for batch in batches] == [workers > 0] * 2
    assert [batch["image"][:, 0, 0, 0].tolist() for batch in batches] == [[0, 1, 2], [3]]
    assert [batch["present"] for batch in batches] == [2, 1]
    # Nothing of one batch is in the memory of the other.
    assert np.unique([batch["image"].data_ptr() for batch in batches]).size == 2
