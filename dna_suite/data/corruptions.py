"""The corruptions of ImageNet-C, applied to pictures as they are tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dna_suite.data.position import seed_of
from dna_suite.errors import DnaError, MissingExtra, UnknownName

# Source: Hendrycks and Dietterich, Benchmarking Neural Network Robustness to Common Corruptions (2019), in their order.
KINDS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
SEVERITIES = (1, 2, 3, 4, 5)

# These take their random numbers from a generator of their own, which an argument seeds; the others from numpy's global one.
SEEDED_BY_ARGUMENT = ("impulse_noise", "glass_blur")
SMALLEST = 32
PACKAGE = "imagecorruptions-imaug"


class Corruption(NamedTuple):
    """One corruption at one severity.

    Args:
        kind: one of `KINDS`.
        severity: 1 to 5.
    """

    kind: str
    severity: int

    def __call__(self, image: Tensor, picture: int) -> Tensor:
        """A picture uint8 [3, side, side], corrupted, as a new one.

        The random part depends on the picture's number, the kind and the severity alone: every model is shown the same pixels.

        Args:
            image: after resizing and cropping, before normalising; at least 32 pixels a side.
            picture: its number in the data set.

        Raises:
            DnaError: see `find_corrupt`.
        """
        corrupt = find_corrupt()
        seed = seed_of("corruption", self.kind, self.severity, picture) % 2**32
        more = {"seed": seed} if self.kind in SEEDED_BY_ARGUMENT else {}
        before = np.random.get_state()
        np.random.seed(seed)
        try:
            pixels = image.permute(1, 2, 0).contiguous().numpy()
            changed = corrupt(pixels, corruption_name=self.kind, severity=self.severity, **more)
        finally:
            np.random.set_state(before)
        assert changed.dtype == np.uint8, "clipped to 0 to 255 and cast by the package"
        # What Pillow made may not be written to, which torch would warn of.
        return torch.from_numpy(np.array(changed)).permute(2, 0, 1)


@cache
def find_corrupt() -> Callable[..., Any]:
    """The function of the package imagecorruptions-imaug that corrupts a picture uint8 [side, side, 3].

    Its strengths and formulas are those that ImageNet-C was made with. What differs: motion blur is computed without ImageMagick,
    zoom blur crops to within a pixel, frost takes one of six photographs where the archive's took one of five, and the
    archive stored its pictures as JPEG of quality 85.

    Raises:
        MissingExtra: the package is not installed; another one has the same import name and cannot be seeded.
        DnaError: it is, and what it needs cannot be loaded.
    """
    try:
        version(PACKAGE)
        import cv2
        from imagecorruptions import corrupt
    except (ModuleNotFoundError, PackageNotFoundError):
        raise MissingExtra(PACKAGE, "corruptions") from None
    except ImportError as problem:
        way = "where its system libraries are missing: pip uninstall opencv-python, pip install opencv-python-headless"
        raise DnaError(f"corruptions need OpenCV, which cannot be loaded ({problem}); {way}") from None
    # Loader processes share the cores already, and threads do not survive the fork that makes them.
    cv2.setNumThreads(1)
    return corrupt


def require_corruptions(kinds: Sequence[str], severities: Sequence[int], size: int | None) -> None:
    """Refuse corruptions that there are not.

    Args:
        kinds: names.
        severities: whole numbers.
        size: side of the pictures that will be corrupted, pixels; None where none will.

    Raises:
        UnknownName: a kind is none of `KINDS`.
        DnaError: a severity is not 1 to 5, one of the two is empty, or pictures are too small.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownName("corruption", kind, KINDS, prefix="data.corruptions ")
    wrong = [severity for severity in severities if severity not in SEVERITIES]
    if wrong or not severities:
        raise DnaError(f"data.severities {list(severities)}: one or more of 1 to 5")
    if not kinds:
        raise DnaError(f"data.corruptions is empty: one or more of {', '.join(KINDS)}, or null for all")
    if size is not None and size < SMALLEST:
        raise DnaError(f"data.size {size}: corruptions are for pictures of {SMALLEST} pixels or more")


def describe_corruptions(corruptions: Sequence[Corruption]) -> dict[str, Any]:
    """Kinds, severities and what computes them, as plain values for a record."""
    return {
        "kinds": list(dict.fromkeys(corruption.kind for corruption in corruptions)),
        "severities": sorted({corruption.severity for corruption in corruptions}),
        "package": f"{PACKAGE} {version(PACKAGE)}",
    }
