import numpy as np
import torch

from dna_suite.data.samples import Paths, PictureSamples


def test_paths_come_back_as_they_were():
    names = ["a/b.jpg", "", "ö/日本.png", b"bad\xff.jpg".decode("utf-8", "surrogateescape")]
    paths = Paths(names)
    assert [paths[i] for i in range(len(paths))] == names
    chosen = paths.select(np.array([3, 0]))
    assert [chosen[0], chosen[1]] == [names[3], names[0]]


def test_no_paths():
    assert len(Paths([])) == 0


def test_a_million_paths_take_little_more_than_their_letters():
    # ImageNet's training names: 28 letters and an offset of 8 bytes each, against 100 bytes for a text in a list.
    paths = Paths([f"n01440764/n01440764_{i:05d}.JPEG" for i in range(1000)])
    assert len(paths.text) + paths.offsets.nbytes < 42 * 1000


def test_adjacent_copies_share_one_decoding(tmp_path, monkeypatch):
    decoded = []

    def decode(data, path, max_pixels):
        decoded.append(data.decode())
        return torch.zeros(3, 4, 4, dtype=torch.uint8)

    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr("dna_suite.data.samples.decode_picture", decode)
    samples = PictureSamples(tmp_path, Paths(["a", "b", "c"]), np.array([0, 1, 0]), lambda image: image, 4, 10**6, "raise")
    for index in (0, 0, 0, 2, 2, 0):
        assert samples[index]["label"] == 0
    assert decoded == ["a", "c", "a"]
