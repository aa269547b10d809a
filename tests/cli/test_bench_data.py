import json

import numpy as np
import pytest
from PIL import Image

from dna_suite.cli import bench_data, bench_pictures
from dna_suite.cli.bench import run
from dna_suite.errors import DnaError


def test_both_sides_see_the_same_pictures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench_data, "SMALL", 64)
    out = tmp_path / "data.json"
    assert run(["data", "--pictures", "12", "--batch", "4", "--rounds", "1", "--threads", "1", "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    data = content["benchmarks"]["data"]
    counts = {name: {side: row[side]["images_per_pass"] for side in ("ours", "timm")} for name, row in data["rows"].items()}
    assert counts == {
        "training, 3 repeats": {"ours": 12, "timm": 12},
        "training": {"ours": 12, "timm": 12},
        "evaluation": {"ours": 12, "timm": 12},
        "32 pixels, in memory": {"ours": 64, "timm": 64},
    }
    for row in data["rows"].values():
        assert row["ours"]["images_per_second_and_core"] == pytest.approx(1e6 / row["ours"]["cpu_us"])
        assert row["ratio"]["rounds"] == 1
    assert 0 < data["pixels"]["train"] < 0.05
    assert 0 < data["pixels"]["val"] < 0.01
    assert data["written"]["pictures"] == 12
    assert str(tmp_path) not in out.read_text().replace(str(out), "")
    shown = capsys.readouterr().out
    assert "times as fast (CPU)" in shown
    assert "timm's posterize is patched" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pictures", "3"], "--pictures 3: at least a batch, which is 64"),
        (["--pictures", "0"], "--pictures 0: 1 or more"),
        (["--heads", "3"], "--heads belongs to dna bench attention, not to data"),
    ],
)
def test_wrong_words(words, message):
    with pytest.raises(DnaError, match=message):
        run(["data", *words])


@pytest.mark.parametrize("photographs", [True, False])
def test_pictures_are_the_same_each_time_and_as_heavy_as_imagenets(tmp_path, monkeypatch, photographs):
    if not photographs:
        monkeypatch.setattr(bench_pictures, "read_photographs", lambda: ([], "textures"))
    first, again = (bench_pictures.write_pictures(tmp_path / name, 8) for name in ("first", "again"))
    assert first == again
    assert 40_000 < first["mean_bytes"] < 65_000
    paths = sorted((tmp_path / "first").rglob("*.JPEG"))
    assert len(paths) == 16
    for path in paths:
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(tmp_path / "first")).read_bytes()
    with Image.open(paths[0]) as picture:
        assert picture.size == (500, 375)
        assert np.asarray(picture).std() > 20
