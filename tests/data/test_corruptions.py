"""Corruptions: what the package is asked, and that its random part depends on the picture alone. Pixels: tests/real."""

import sys
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch

from dna_suite.data import corruptions
from dna_suite.data.corruptions import KINDS, Corruption, describe_corruptions, find_corrupt, require_corruptions
from dna_suite.errors import DnaError, MissingExtra


@pytest.fixture
def asked(monkeypatch):
    """A stand-in for the package that adds noise as the package does; what it was asked is appended to a list."""
    calls = []

    def corrupt(pixels, corruption_name, severity, seed=None):
        calls.append((corruption_name, severity, seed))
        assert pixels.dtype == np.uint8
        assert pixels.flags.c_contiguous
        noise = (np.random if seed is None else np.random.RandomState(seed)).randint(0, 9, pixels.shape)
        return (pixels // 2 + noise).astype(np.uint8)

    monkeypatch.setattr(corruptions, "find_corrupt", lambda: corrupt)
    return calls


def test_the_random_part_depends_on_picture_kind_and_severity_alone(asked):
    image = torch.full((3, 32, 32), 100, dtype=torch.uint8)
    np.random.seed(1)
    first = Corruption("fog", 3)(image, 7)
    drawn = np.random.rand()
    np.random.seed(2)
    assert (Corruption("fog", 3)(image, 7) == first).all()
    others = [Corruption("fog", 3)(image, 8), Corruption("fog", 4)(image, 7), Corruption("snow", 3)(image, 7)]
    assert all((other != first).any() for other in others)
    # What comes after draws as if nothing had been corrupted.
    np.random.seed(1)
    assert np.random.rand() == drawn
    assert first.dtype == torch.uint8
    assert first.shape == (3, 32, 32)
    assert (image == 100).all()


def test_kinds_with_a_generator_of_their_own_get_the_seed(asked):
    image = torch.zeros(3, 32, 32, dtype=torch.uint8)
    results = [Corruption(kind, 2)(image, 5) for kind in ("glass_blur", "impulse_noise", "contrast", "glass_blur")]
    assert [(kind, severity) for kind, severity, _ in asked] == [
        ("glass_blur", 2),
        ("impulse_noise", 2),
        ("contrast", 2),
        ("glass_blur", 2),
    ]
    seeds = [seed for _, _, seed in asked]
    assert seeds[2] is None
    assert seeds[0] == seeds[3] != seeds[1]
    assert (results[0] == results[3]).all()


def test_pixels_keep_their_places(monkeypatch):
    monkeypatch.setattr(corruptions, "find_corrupt", lambda: lambda pixels, **_: 255 - pixels)
    image = torch.randint(0, 256, (3, 32, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert (Corruption("fog", 1)(image.permute(1, 2, 0).contiguous().permute(2, 0, 1), 0) == 255 - image).all()


def test_what_there_is_not_is_refused():
    require_corruptions(KINDS, (1, 5), 224)
    require_corruptions(KINDS, (1, 5), None)
    with pytest.raises(DnaError, match=r"unknown corruption 'data.corruptions fogg'.*did you mean 'data.corruptions fog'"):
        require_corruptions(["fogg"], (1,), 224)
    for severities in ((0,), (1, 6), ()):
        with pytest.raises(DnaError, match=r"data.severities .*: one or more of 1 to 5"):
            require_corruptions(KINDS, severities, 224)
    with pytest.raises(DnaError, match=r"data.corruptions is empty"):
        require_corruptions([], (1,), 224)
    with pytest.raises(DnaError, match=r"data.size 28: corruptions are for pictures of 32 pixels or more"):
        require_corruptions(KINDS, (1,), 28)


@pytest.fixture
def anew():
    """The package is looked for again, and again after the test."""
    find_corrupt.cache_clear()
    yield
    find_corrupt.cache_clear()


@pytest.mark.usefixtures("anew")
def test_a_missing_package_is_one_line(monkeypatch):
    def found_nothing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(corruptions, "version", found_nothing)
    with pytest.raises(MissingExtra, match=r"imagecorruptions-imaug is not installed: pip install 'dna_suite\[corruptions\]'"):
        find_corrupt()
    monkeypatch.setattr(corruptions, "version", lambda name: "1.1.5")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtra, match="imagecorruptions-imaug is not installed"):
        find_corrupt()


@pytest.mark.usefixtures("anew")
def test_an_opencv_without_its_libraries_says_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "cv2.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    monkeypatch.setattr(corruptions, "version", lambda name: "1.1.5")
    with pytest.raises(DnaError, match=r"OpenCV, which cannot be loaded \(libGL.so.1.*pip install opencv-python-headless"):
        find_corrupt()


def test_a_record_says_what_was_applied(monkeypatch):
    monkeypatch.setattr(corruptions, "version", lambda name: "1.1.5")
    found = describe_corruptions([Corruption("fog", 5), Corruption("fog", 1), Corruption("snow", 1), Corruption("snow", 5)])
    assert found == {"kinds": ["fog", "snow"], "severities": [1, 5], "package": "imagecorruptions-imaug 1.1.5"}
