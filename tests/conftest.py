"""Every test: one thread, no data outside a folder of the session's own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Toy twins are written once for the session."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNA_DATA", str(folder))
        yield folder
