"""ReaL: what people saw in ImageNet's validation pictures when they were asked again, several classes or none."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from dna_suite.errors import DnaError

PICTURES = 50_000
NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})\.")


def read_real_labels(path: Path | None) -> list[list[int]]:
    """The ImageNet class indices of each validation picture, by its number less one; an empty list where none fits.

    Args:
        path: the published real.json, or one in its form; None is the copy that timm brings.

    Raises:
        DnaError: the file is missing or is not a list of lists of class indices.

    Source: Beyer et al., Are we done with ImageNet? (2020), google-research/reassessed-imagenet.
    """
    if path is None:
        from timm.data import RealLabelsImagenet

        return list(RealLabelsImagenet(range(PICTURES)).real_labels.values())
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise DnaError(f"data.real_labels: {path}: {problem.strerror}") from None
    except ValueError as problem:
        raise DnaError(f"data.real_labels: {path} is no JSON: {problem}") from None
    if not isinstance(found, list):
        raise DnaError(f"data.real_labels: {path} is no list: it has a list of class indices for each validation picture")
    for number, labels in enumerate(found):
        if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 1000 for label in labels):
            raise DnaError(
                f"data.real_labels: {path}: entry {number} is {str(labels)[:40]}, not a list of class indices 0 to 999"
            )
    return found


def labels_of(labels: Sequence[Sequence[int]], name: str) -> Sequence[int]:
    """The labels of a validation picture, found by the number in its file name.

    Args:
        labels: from `read_real_labels`.
        name: file name or path.

    Raises:
        DnaError: the name is not ILSVRC2012_val_ and eight digits, or the number is beyond the labels.
    """
    number = NUMBER.search(name)
    if number is None:
        raise DnaError(f"{name}: ReaL labels go by file names such as ILSVRC2012_val_00000001.JPEG")
    place = int(number[1])
    if not 1 <= place <= len(labels):
        raise DnaError(f"{name}: there are ReaL labels for the pictures 1 to {len(labels)}")
    return labels[place - 1]
