import numpy as np
import pytest
import torch

from dna_suite.data.order import IDLE
from dna_suite.data.pictures import UnreadablePicture
from dna_suite.data.resident import Decoded, MovedBatches, PlainBatches, Resident, Transformed
from dna_suite.data.samples import Paths, PictureSamples

from .pictures import COLOURS, write_solid


def noise(channels: int = 3, side: int = 8) -> Resident:
    pictures = np.random.default_rng(0).integers(1, 256, (20, channels, side, side), dtype=np.uint8)
    return Resident(pictures, np.arange(20) % 4)


def places(picture: np.ndarray, moved: np.ndarray, shift: int) -> list[tuple[int, int]]:
    padded = np.pad(picture, ((0, 0), (shift, shift), (shift, shift)))
    side, steps = picture.shape[-1], range(2 * shift + 1)
    return [(d, r) for d in steps for r in steps if np.array_equal(padded[:, d : d + side, r : r + side], moved)]


def test_each_picture_is_moved_and_flipped_as_its_key_says():
    samples = noise()
    keys = [(epoch, index, 0) for epoch in range(40) for index in range(20)]
    moved = MovedBatches(samples, 3, shift=2, flip=0.25).__getitems__(keys)["image"].numpy()
    seen, flips = set(), 0
    for (_, index, _), picture in zip(keys, moved, strict=True):
        straight = places(samples.pictures[index], picture, 2)
        turned = places(samples.pictures[index][..., ::-1], picture, 2)
        assert len(straight) + len(turned) == 1
        flips += len(turned)
        seen.update(straight + turned)
    assert len(seen) == 25
    # 800 draws at 0.25: four standard deviations are 49.
    assert abs(flips - 200) < 49


def test_a_key_gives_the_same_pixels_in_any_batch():
    batches = MovedBatches(noise(), 1, shift=3, flip=0.5)
    together = batches.__getitems__([(2, 5, 0), (0, 7, 1), (2, 5, 1)])
    alone = batches[0, 7, 1]
    assert torch.equal(together["image"][1], alone["image"])
    assert not torch.equal(together["image"][0], together["image"][2])
    assert (together["index"].tolist(), together["label"].tolist(), together["present"]) == ([5, 7, 5], [1, 3, 1], 3)


def test_no_shift_and_no_flip_is_the_picture_and_an_idle_key_does_not_count():
    samples = noise()
    batch = MovedBatches(samples, 0, shift=0).__getitems__([(0, 4, 0), (0, 9, IDLE)])
    assert np.array_equal(batch["image"].numpy(), samples.pictures[[4, 9]])
    assert (batch["counted"].tolist(), batch["present"]) == ([True, False], 1)


def test_grey_becomes_three_equal_channels():
    samples = noise(channels=1)
    batch = PlainBatches(samples).__getitems__([(3, True), (8, False)])
    assert batch["image"].shape == (2, 3, 8, 8)
    assert all(np.array_equal(batch["image"][:, channel].numpy(), samples.pictures[[3, 8], 0]) for channel in range(3))
    assert batch["counted"].tolist() == [True, False]
    assert torch.equal(Transformed(samples, lambda picture: 255 - picture)[3]["image"], 255 - batch["image"][0])


def test_a_selection_shares_the_pictures():
    samples = noise()
    part = samples.select(np.array([9, 2, 17])).select(np.array([2, 0]))
    assert part.pictures is samples.pictures
    assert np.array_equal(part.gather(np.array([0, 1])), samples.pictures[[17, 9]])
    assert part.labels.tolist() == [1, 1]
    assert part[1]["label"] == 1


def test_batches_do_not_change_what_is_stored():
    samples = noise()
    before = samples.pictures.copy()
    MovedBatches(samples, 0, shift=0, flip=1.0).__getitems__([(0, index, 0) for index in range(20)])
    assert np.array_equal(samples.pictures, before)


def decoded(root, on_error: str) -> Resident:
    names = [write_solid(root / f"{name}.png", COLOURS[name], 8).name for name in "abcd"]
    (root / "c.png").write_bytes((root / "c.png").read_bytes()[:40])
    files = PictureSamples(root, Paths(names), np.arange(4), lambda picture: picture, 8, 10**6, on_error)
    return Resident(Decoded(files, 8), files.labels)


def test_unreadable_files_are_left_out_of_training_and_do_not_count_in_evaluation(tmp_path):
    samples = decoded(tmp_path, "skip")
    train, plain = MovedBatches(samples, 0, shift=0), PlainBatches(samples)
    batch = train.__getitems__([(0, 2, 0), (0, 1, 0)])
    assert (batch["index"].tolist(), batch["present"], batch["skipped"]) == ([1], 1, [f"{tmp_path}/c.png"])
    assert batch["image"][0, :, 0, 0].tolist() == list(COLOURS["b"])
    alone = train.__getitems__([(0, 2, 0)])
    assert (alone["index"].tolist(), alone["present"], alone["skipped"]) == ([2], 0, [f"{tmp_path}/c.png"])
    batch = plain.__getitems__([(index, True) for index in range(4)])
    assert (batch["counted"].tolist(), batch["skipped"]) == ([True, True, False, True], [f"{tmp_path}/c.png"])
    assert batch["image"][2].max() == 0
    assert [bool(samples.find_problem(index)) for index in range(4)] == [False, False, True, False]


def test_an_unreadable_file_or_another_size_ends_the_run_with_its_path(tmp_path):
    with pytest.raises(UnreadablePicture, match=f"{tmp_path}/c.png"):
        PlainBatches(decoded(tmp_path, "raise"))
    write_solid(tmp_path / "c.png", COLOURS["c"], 9)
    samples = decoded(tmp_path, "skip")
    write_solid(tmp_path / "c.png", COLOURS["c"], 9)
    assert samples.find_problem(2) == f"{tmp_path}/c.png: 9 x 9 pixels, not 8 x 8"
