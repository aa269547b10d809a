"""Run folders: names, and what may be started, resumed, replaced and deleted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from dna_suite.errors import DnaError
from dna_suite.runs.folder import RunFolder, run_folder, write_json, write_text
from dna_suite.spec import AttentionSpec

RECIPE = {"task": "classification", "seed": 0, "model": {"optim": {"lr": 1e-05}}}


def started(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.create(RECIPE, ["dna", "fit", "--config", "a b.yaml"], {"versions": {}})
    return folder


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_folder_is_recipe_label_and_seed() -> None:
    assert run_folder("runs", "digits", AttentionSpec("dna"), 3) == Path("runs/digits/dna/seed3")
    sparse = AttentionSpec("dna", pattern="fibottention")
    assert run_folder("runs", "digits", sparse, 0, AttentionSpec("dna")) == Path("runs/digits/dna+fibottention/seed0")


def test_hash_stands_for_what_differs_from_the_recipe_besides_the_name() -> None:
    recipe = AttentionSpec("dna", layers="1:-1", options={"alpha": 0.3})

    def label(attention: AttentionSpec) -> str:
        return run_folder("r", "x", attention, 0, recipe).parent.name

    assert label(recipe) == "dna"
    assert label(AttentionSpec("dna", layers=" 1 : -1", options={"alpha": 0.3})) == "dna"
    # Another name drops the recipe's options, so their absence is no difference, and neither is a default typed out.
    assert label(AttentionSpec("dna-q", layers="1:-1")) == "dna-q"
    assert label(AttentionSpec("dna-q", layers="1:-1", options={"alpha": 0.5})) == "dna-q"
    others = [
        label(AttentionSpec("dna", layers="1:-1")),
        label(AttentionSpec("dna", options={"alpha": 0.3})),
        label(AttentionSpec("dna", layers="1:-1", options={"alpha": 0.7})),
    ]
    assert len(set(others)) == 3
    assert all(re.fullmatch(r"dna-[0-9a-f]{6}", other) for other in others)


def test_hash_is_the_same_in_every_process() -> None:
    # The start of sha256('{"layers": "0,2", "options.alpha": 1.0}'); Python's own hash changes from process to process.
    folder = run_folder("r", "x", AttentionSpec("dna", layers="0,2", options={"alpha": 1.0}), 0)
    assert folder.parent.name == "dna-18a8d0"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_recipe_name_is_one_folder(name: str) -> None:
    with pytest.raises(DnaError, match="recipe name"):
        run_folder("runs", name, AttentionSpec(), 0)


def test_create_writes_recipe_command_and_environment(tmp_path: Path) -> None:
    folder = started(tmp_path / "runs/x/dna/seed0")
    first, rest = folder.recipe.read_text().split("\n", 1)
    assert first.startswith("# ")
    assert yaml.safe_load(rest) == RECIPE
    assert rest.startswith("task: classification\nseed: 0\n")
    assert folder.command.read_text() == "dna fit --config 'a b.yaml'\n"
    assert json.loads(folder.environment.read_text()) == {"versions": {}}
    assert folder.best == folder.path / "checkpoints" / "best.ckpt"


def test_an_existing_run_stops_the_next_and_names_both_ways(tmp_path: Path) -> None:
    folder = started(tmp_path / "run")
    before = snapshot(tmp_path)
    with pytest.raises(DnaError, match=r"--resume .*--overwrite"):
        started(folder.path)
    with pytest.raises(DnaError, match="give one"):
        folder.check(overwrite=True, resume=True)
    assert snapshot(tmp_path) == before


def test_an_empty_folder_is_free_and_a_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    started(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(DnaError, match="is a file"):
        started(tmp_path / "file")


def test_overwrite_deletes_what_a_run_wrote_and_nothing_else(tmp_path: Path) -> None:
    folder = started(tmp_path / "run")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "best.ckpt").write_text("weights of another run")
    written = [
        "metrics.csv",
        "result.json",
        "env.1.json",
        "recipe.1.yaml",
        "checkpoints/best.ckpt",
        "checkpoints/step00000001.ckpt",
        "predictions/predictions.jsonl",
        "evaluations/robustness/result.json",
        "tensorboard/version_0/events.out.tfevents.1",
    ]
    kept = ["notes.txt", "checkpoints/mine.pth", "figures/loss.png"]
    for name in written + kept:
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text(name)
    (folder.path / "wandb").symlink_to(elsewhere)
    (elsewhere / "result.json").write_text("result of another run")
    (folder.path / "evaluations/linked").symlink_to(elsewhere)

    folder.create({"task": "other"}, ["dna"], {}, overwrite=True)

    assert set(snapshot(folder.path)) == {*kept, "recipe.yaml", "command.txt", "env.json"}
    assert "task: other" in folder.recipe.read_text()
    assert folder.command.read_text() == "dna\n"
    assert snapshot(elsewhere) == {"best.ckpt": b"weights of another run", "result.json": b"result of another run"}


def test_overwrite_leaves_a_folder_alone_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/best.ckpt").write_text("precious")
    before = snapshot(tmp_path)
    for words in ({"overwrite": True}, {"resume": True}):
        with pytest.raises(DnaError, match="not a run folder"):
            RunFolder(tmp_path).create(RECIPE, ["dna"], {}, **words)
    with pytest.raises(DnaError, match="nothing was deleted"):
        RunFolder(tmp_path).clear()
    assert snapshot(tmp_path) == before


def test_resume_appends_the_command_and_keeps_the_old_recipe(tmp_path: Path) -> None:
    folder = started(tmp_path / "run")
    original = folder.recipe.read_text()
    folder.create(RECIPE, ["dna", "fit", "--resume"], {"versions": {}}, resume=True)
    assert not list(folder.path.glob("recipe.*.yaml"))
    for epochs in (10, 20):
        folder.create({**RECIPE, "epochs": epochs}, ["dna", "fit", "--resume"], {"versions": {"torch": str(epochs)}}, resume=True)
    assert folder.command.read_text().splitlines() == ["dna fit --config 'a b.yaml'", *["dna fit --resume"] * 3]
    assert (folder.path / "recipe.1.yaml").read_text() == original
    assert "epochs: 10" in (folder.path / "recipe.2.yaml").read_text()
    assert "epochs: 20" in folder.recipe.read_text()
    assert json.loads((folder.path / "env.1.json").read_text()) == {"versions": {}}


def test_resume_of_a_run_that_never_started_is_a_start(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(RECIPE, ["dna"], {}, resume=True)
    assert folder.exists()


def test_two_processes_cannot_both_get_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As the second process sees it that looked before the first one wrote anything.
    folder = started(tmp_path / "run")
    before = snapshot(tmp_path)
    monkeypatch.setattr(RunFolder, "check", lambda self, **words: None)
    monkeypatch.setattr(RunFolder, "exists", lambda self: False)
    with pytest.raises(DnaError, match="another process"):
        started(folder.path)
    assert snapshot(tmp_path) == before


def test_a_write_that_fails_leaves_the_old_file_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"a": 1})

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dna_suite.runs.folder.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "half")
    assert snapshot(tmp_path) == {"result.json": b'{\n  "a": 1\n}\n'}
