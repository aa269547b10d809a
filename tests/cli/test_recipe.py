"""Merging of recipes: bases, overlays, overrides, attention changes, snapshots."""

from pathlib import Path

import pytest
import yaml

from dna_suite.cli.recipe import read_recipe, read_snapshot
from dna_suite.errors import DnaError


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("trainer: {max_epochs: 3, callbacks: [a]}\nmodel: {optim: {lr: 1e-3, eps: 1e-8}}\n")
    (tmp_path / "mine.yaml").write_text(
        "task: classification\nbase: base.yaml\nmodel:\n  attention: {name: dna, options: {alpha: 0.2}}\n  optim: {lr: 0.5}\n"
    )
    (tmp_path / "overlay.yaml").write_text("trainer:\n  max_epochs: 9\n  callbacks+: [b]\n")
    return tmp_path


def test_bases_come_first_and_sections_merge_by_key(recipes: Path) -> None:
    recipe = read_recipe(["--config", "mine.yaml"])
    assert recipe.name == "mine"
    assert recipe.values["model"]["optim"] == {"lr": 0.5, "eps": 1e-8}
    assert recipe.values["trainer"] == {"max_epochs": 3, "callbacks": ["a"]}
    assert "base" not in recipe.values
    assert recipe.origin("model.optim.lr") == "mine.yaml:5"
    assert recipe.origin("trainer.max_epochs").endswith("base.yaml:1")


def test_overlays_win_and_plus_appends(recipes: Path) -> None:
    recipe = read_recipe(["--config=mine.yaml", "--config=overlay.yaml"])
    assert recipe.values["trainer"] == {"max_epochs": 9, "callbacks": ["a", "b"]}
    assert recipe.name == "mine"


def test_the_command_line_wins_whatever_its_place(recipes: Path) -> None:
    for words in (
        ["--config=mine.yaml", "--model.optim.lr=2e-4", "--seed", "5"],
        ["--seed=5", "--model.optim.lr", "2e-4", "--config=mine.yaml"],
    ):
        recipe = read_recipe(words)
        assert recipe.values["model"]["optim"]["lr"] == 2e-4
        assert recipe.values["seed"] == 5
        assert recipe.typed == {"model.optim.lr", "seed"}
        assert recipe.origin("model.optim.lr") == "command line"


def test_another_attention_drops_the_old_ones_options_with_one_note(recipes: Path) -> None:
    recipe = read_recipe(["--config=mine.yaml", "--model.attention.name=dna-v"])
    assert recipe.values["model"]["attention"] == {"name": "dna-v"}
    assert recipe.notes == ["attention dna -> dna-v: dropped options {'alpha': 0.2}"]


def test_options_given_with_the_new_attention_stay_in_either_order(recipes: Path) -> None:
    options = ["--model.attention.options.alpha=0.7", "--model.attention.name=dna-v"]
    for words in (options, options[::-1]):
        recipe = read_recipe(["--config=mine.yaml", *words])
        assert recipe.values["model"]["attention"] == {"name": "dna-v", "options": {"alpha": 0.7}}


def test_the_same_attention_keeps_its_options(recipes: Path) -> None:
    recipe = read_recipe(["--config=mine.yaml", "--model.attention.name=dna"])
    assert recipe.values["model"]["attention"] == {"name": "dna", "options": {"alpha": 0.2}}
    assert recipe.notes == []


def test_a_circle_and_a_missing_base_are_named(recipes: Path) -> None:
    (recipes / "a.yaml").write_text("base: b.yaml\n")
    (recipes / "b.yaml").write_text("base: a.yaml\n")
    with pytest.raises(DnaError, match=r"leads back to this file: a\.yaml -> b\.yaml -> a\.yaml"):
        read_recipe(["--config=a.yaml"])
    (recipes / "c.yaml").write_text("task: x\nbase: [nowhere.yaml]\n")
    with pytest.raises(DnaError, match=r"c\.yaml:2: base: nowhere\.yaml does not exist"):
        read_recipe(["--config=c.yaml"])


def test_a_dumped_recipe_reads_back_to_the_same_values(recipes: Path) -> None:
    recipe = read_recipe(["--config=mine.yaml", "--config=overlay.yaml", "--model.optim.lr=1e-5"])
    (recipes / "again.yaml").write_text(recipe.dump())
    again = read_recipe(["--config=again.yaml"])
    assert again.values == recipe.values
    assert again.name == "mine"
    assert yaml.safe_load(recipe.dump())["recipe"] == "mine"


def test_a_snapshot_is_read_from_its_run_folder(recipes: Path) -> None:
    run = recipes / "runs" / "mine" / "dna" / "seed0"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text(read_recipe(["--config=mine.yaml"]).dump())
    assert read_snapshot(run).name == "mine"
    assert read_snapshot(run).values["model"]["attention"]["name"] == "dna"
    with pytest.raises(DnaError, match="does not exist"):
        read_snapshot(recipes / "runs" / "other")
    with pytest.raises(DnaError, match=r"holds no recipe\.yaml"):
        read_snapshot(recipes / "runs")


def test_no_recipe_says_how_to_give_one() -> None:
    with pytest.raises(DnaError, match=r"no recipe given: --config tasks/digits\.yaml"):
        read_recipe([])
