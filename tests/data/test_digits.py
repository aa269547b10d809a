import hashlib

import numpy as np
import torch

from dna_suite.data.digits import Digits, read_digits, scale_digits, split_digits


def loaded(loader) -> dict[str, torch.Tensor]:
    batches = list(loader)
    return {name: torch.cat([batch[name] for batch in batches]) for name in ("image", "label", "index", "counted")}


def shown(data: Digits, split: str) -> np.ndarray:
    return data.samples(split).pictures[:, 0]


def test_file_is_scikit_learns_copy():
    from sklearn.datasets import load_digits

    theirs = load_digits()
    ink, labels = read_digits()
    assert np.array_equal(ink, theirs.images)
    assert np.array_equal(labels, theirs.target)


def test_split_is_fixed_stratified_and_whole():
    labels = read_digits()[1]
    splits = split_digits(labels)
    assert {split: len(part) for split, part in splits.items()} == {"val": 180, "test": 360, "train": 1257}
    assert sorted(np.concatenate(list(splits.values())).tolist()) == list(range(1797))
    share = np.bincount(labels) / 1797
    for part in splits.values():
        assert np.abs(np.bincount(labels[part]) - share * len(part)).max() < 1.5
    # The split never changes: results of other versions stay comparable.
    digest = hashlib.sha256(np.concatenate([splits[s] for s in ("train", "val", "test")]).astype("<i8").tobytes()).hexdigest()
    assert digest == "5108c3e061f7850a19c9799529db6191d0f43fe1e4adfbef81d92efdf4025677"


def test_normalisation_is_that_of_the_training_pictures():
    data = Digits()
    pictures = data.samples("train").pictures / 255
    # Shown to three decimals.
    assert abs(pictures.mean() - data.mean[0]) < 5e-4
    assert abs(pictures.std() - data.std[0]) < 5e-4


def test_scaling_keeps_range_and_place():
    ink = np.zeros((1, 8, 8), dtype=np.uint8)
    ink[0, 2:4, 4:6] = 16
    scaled = scale_digits(ink, 32)[0]
    assert scaled.shape == (32, 32)
    assert scaled[10:14, 18:22].min() > 200
    assert scaled[:3].max() == 0
    assert np.array_equal(scale_digits(ink, 8)[0], ink[0].astype(int) * 255 // 16)


def test_batches_of_every_split():
    data = Digits(batch=50)
    assert data.counts() == {"train": 1257, "val": 180, "test": 360}
    for split, loader in (("train", data.train_dataloader()), ("val", data.val_dataloader()), ("test", data.test_dataloader())):
        batch = loaded(loader)
        assert batch["image"].shape == (data.counts()[split], 3, 32, 32)
        assert batch["image"].dtype == torch.uint8
        assert sorted(batch["index"].tolist()) == list(range(data.counts()[split]))
        assert torch.equal(batch["label"], torch.from_numpy(data.samples(split).labels)[batch["index"]])
        assert batch["counted"].all()


def test_evaluation_pictures_are_the_stored_ones():
    data = Digits()
    batch = loaded(data.val_dataloader())
    assert np.array_equal(batch["image"][:, 1].numpy(), shown(data, "val"))


def test_training_pictures_move_by_their_key():
    data = Digits(shift=2)
    dataset = data.keyed("train")
    moved = dataset[1, 7, 0]["image"][0].numpy()
    padded = np.pad(shown(data, "train")[7], 2)
    places = [(d, r) for d in range(5) for r in range(5) if np.array_equal(padded[d : d + 32, r : r + 32], moved)]
    assert len(places) == 1
    shifts = {dataset[epoch, 7, 0]["image"].numpy().tobytes() for epoch in range(200)}
    assert len(shifts) == 25
    together = dataset.__getitems__([(0, 3, 0), (1, 7, 0), (0, 9, 0)])
    assert np.array_equal(together["image"][1, 0].numpy(), moved)


def test_no_shift_leaves_pictures_alone():
    data = Digits(shift=0)
    assert np.array_equal(data.keyed("train")[5, 11, 0]["image"][2].numpy(), shown(data, "train")[11])


def test_workers_do_not_change_pixels():
    alone, two = (loaded(Digits(workers=workers, subset=40, batch=16).train_dataloader()) for workers in (0, 2))
    assert all(torch.equal(alone[name], two[name]) for name in alone)


def test_subset_is_a_balanced_part_of_train_alone():
    data = Digits(subset=20)
    assert data.counts() == {"train": 20, "val": 180, "test": 360}
    assert np.bincount(data.samples("train").labels).tolist() == [2] * 10
