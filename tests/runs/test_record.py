"""result.json: what is written, merged, refused, and what git says about the code."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dna_suite
from dna_suite.errors import DnaError
from dna_suite.runs import record
from dna_suite.runs.record import read_result, write_result
from dna_suite.spec import AttentionSpec

DESCRIPTION: dict[str, Any] = {
    "recipe": "digits",
    "task": "classification",
    "attention": AttentionSpec("dna").plain(),
    "label": "dna",
    "backbone": {"name": "vit_digits", "size": "paper"},
    "seed": 0,
    "toy": False,
    "data": {"name": "digits", "root": None, "counts": {"train": 1257, "val": 180}, "subset": None},
    "parameters": 142_000,
    "multiply_adds": 2_300_000,
    "transform": {"resize": 32, "mean": (0.5, 0.5, 0.5)},
}
HARDWARE: dict[str, Any] = {"cores": 2, "accelerators": []}
TRAINING = {"epochs": 20, "steps": 400, "seconds": 25.1, "finished": True}
BEST = {"metric": "val/top1", "value": 0.98, "epoch": 3, "step": 60}


def fitted(folder: Path) -> dict[str, Any]:
    return write_result(folder, DESCRIPTION, {"val/top1": (0.98, 180)}, machine=HARDWARE, best=BEST, training=TRAINING)


def changed(**keys: Any) -> dict[str, Any]:
    return {**DESCRIPTION, **keys}


def test_fit_writes_what_read_gives_back(tmp_path: Path) -> None:
    written = fitted(tmp_path / "run")
    result = read_result(tmp_path / "run")
    assert result == written == read_result(tmp_path / "run" / "result.json")
    assert result["version"] == 1
    assert result["metrics"] == {"val/top1": {"value": 0.98, "samples": 180}}
    assert result["training"] == TRAINING
    assert result["best"] == BEST
    assert result["versions"]["dna_suite"] == dna_suite.__version__
    assert result["hardware"] == HARDWARE


def test_test_adds_its_metrics_and_leaves_training_alone(tmp_path: Path) -> None:
    fitted(tmp_path)
    tested = changed(data={"name": "digits", "root": "elsewhere", "counts": {"test": 360}, "subset": None})
    result = write_result(
        tmp_path, tested, {"test/top1": (0.97, 360), "val/top1": (0.99, 180)}, machine={"accelerators": ["H200"]}
    )
    assert result["metrics"] == {"val/top1": {"value": 0.99, "samples": 180}, "test/top1": {"value": 0.97, "samples": 360}}
    assert result["data"]["counts"] == {"train": 1257, "val": 180, "test": 360}
    assert (result["training"], result["best"]) == (TRAINING, BEST)
    assert result["hardware"] == {"accelerators": ["H200"]}


def test_a_metric_of_another_transform_or_subset_says_so_itself(tmp_path: Path) -> None:
    fitted(tmp_path)
    wide = {"resize": 64, "mean": [0.5, 0.5, 0.5]}
    data = {**DESCRIPTION["data"], "subset": 50}
    result = write_result(tmp_path, changed(transform=wide, data=data), {"test/top1": (0.9, 50)}, machine=HARDWARE)
    assert result["metrics"]["test/top1"] == {"value": 0.9, "samples": 50, "transform": wide, "subset": 50}
    assert result["metrics"]["val/top1"] == {"value": 0.98, "samples": 180}
    assert result["transform"]["resize"] == 32


@pytest.mark.parametrize(
    ("difference", "named"),
    [
        ({"toy": True}, "toy False there, True here"),
        ({"seed": 1}, "seed 0 there, 1 here"),
        ({"attention": AttentionSpec("softmax").plain()}, "attention"),
        ({"data": {"name": "imagenet"}}, "data.name 'digits' there, 'imagenet' here"),
    ],
)
def test_another_runs_metrics_are_refused(tmp_path: Path, difference: dict[str, Any], named: str) -> None:
    fitted(tmp_path)
    before = (tmp_path / "result.json").read_bytes()
    with pytest.raises(DnaError, match=named):
        write_result(tmp_path, changed(**difference), {"test/top1": (0.5, 10)}, machine=HARDWARE)
    assert (tmp_path / "result.json").read_bytes() == before


def test_a_value_that_is_no_number_is_null(tmp_path: Path) -> None:
    result = write_result(tmp_path, DESCRIPTION, {"val/loss": (math.nan, 180), "val/top1": (math.inf, 180)}, machine=HARDWARE)
    assert [entry["value"] for entry in result["metrics"].values()] == [None, None]
    assert json.loads((tmp_path / "result.json").read_text()) == result


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "cannot be read"),
        ("[]", "not a record"),
        ('{"a": 1}', "no version"),
        ('{"version": 2}', "reads version 1"),
        ('{"version": 1, "recipe": "digits"}', "lacks task, attention"),
    ],
)
def test_a_file_that_is_no_record_is_named(tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)
    with pytest.raises(DnaError, match=named) as error:
        read_result(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("seed", True, "seed is True"),
        ("parameters", "many", "parameters is 'many'"),
        ("metrics", {"val/top1": 0.5}, "metrics.val/top1 lacks"),
    ],
)
def test_a_wrong_type_is_named(tmp_path: Path, key: str, value: Any, named: str) -> None:
    result = fitted(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps({**result, key: value}))
    with pytest.raises(DnaError, match=named):
        read_result(tmp_path)


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(DnaError, match=r"result\.json: no such file"):
        read_result(tmp_path)


def test_commit_is_that_of_our_tree_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "dna_suite"
    package.mkdir()
    shutil.copy(dna_suite.__file__, package / "__init__.py")
    monkeypatch.setattr(record.dna_suite, "__file__", str(package / "__init__.py"))

    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    def asked_anew() -> str | None:
        record.commit.cache_clear()
        return record.commit()

    try:
        git("init", "-q")
        # An installed copy inside somebody's repository, which does not track it.
        assert asked_anew() is None
        git("add", ".")
        git("commit", "-qm", "first")
        head = git("rev-parse", "--short=12", "HEAD")
        assert asked_anew() == head
        (package / "__init__.py").write_text("changed = True\n")
        assert record.commit() == head, "a process keeps the commit that it started with"
        assert asked_anew() == f"{head}-dirty"
    finally:
        record.commit.cache_clear()


def test_environment_holds_the_settings_that_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("DNA_DATA", raising=False)
    content = record.environment(["H200"])
    assert content["settings"]["OMP_NUM_THREADS"] == "1"
    assert "DNA_DATA" not in content["settings"]
    assert content["hardware"]["accelerators"] == ["H200"]
    assert content["hardware"]["cores"] >= 1
    assert content["versions"]["torch"].startswith("2.")
    json.dumps(content)
