"""Grouping, statistics and notes of a report, on records written by hand-made numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dna_suite.errors import DnaError, UnknownName
from dna_suite.runs.report import build_report
from dna_suite.runs.tables import END, START, Table, difference, measure, place, quantity
from dna_suite.spec import AttentionSpec

WriteRun = Callable[..., Path]


def cells(table: Table) -> dict[str, list[str]]:
    """Header -> column; a gain is filed under the metric before it."""
    named: dict[str, list[str]] = {}
    for position, header in enumerate(table.headers):
        named[f"{table.headers[position - 1]} gain" if header == "gain" else header] = table.columns[position]
    return named


def test_mean_deviation_and_gain_over_seeds(tmp_path: Path, write_run: WriteRun) -> None:
    for seed, (softmax, dna) in enumerate([(0.96, 0.98), (0.98, 0.98), (0.97, 0.99)]):
        write_run(tmp_path, AttentionSpec("dna"), seed, {"test/top1": (dna, 360), "test/loss": (0.125, 360)})
        write_run(tmp_path, AttentionSpec("softmax"), seed, {"test/top1": (softmax, 360), "test/loss": (0.25, 360)})
    (table,) = build_report([tmp_path]).tables
    assert table.title == "digits: vit_digits, test"
    # Deviations by hand: 0.96 0.98 0.97 -> 0.01; 0.98 0.98 0.99 -> 0.005774.
    assert cells(table) == {
        "attention": ["softmax", "dna"],
        "seeds": ["0 1 2", "0 1 2"],
        "top1": ["97.00 ± 1.00", "98.33 ± 0.58"],
        "top1 gain": ["", "+1.33"],
        "loss": ["0.25 ± 0", "0.125 ± 0"],
        "samples": ["360", "360"],
        "parameters": ["142.90 k", "190.00 k"],
        "multiply-adds": ["2.30 M", "2.30 M"],
    }
    assert table.notes == []


def test_groups_follow_the_stored_attention_not_folder_names(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, AttentionSpec("dna"), 0, {"test/top1": (0.5, 10)}, folder="a/renamed")
    write_run(tmp_path, AttentionSpec("dna"), 1, {"test/top1": (0.7, 10)}, folder="b")
    write_run(tmp_path, AttentionSpec("dna", layers="1:-1", options={"alpha": 0.3}), 0, {"test/top1": (0.6, 10)}, folder="c")
    (table,) = build_report([tmp_path]).tables
    assert cells(table)["attention"] == ["dna", "dna [layers=1:-1 alpha=0.3]"]
    assert cells(table)["top1"] == ["60.00 ± 14.14", "60.00"]
    assert "gain" not in table.headers


def test_backbones_subsets_and_splits_have_their_own_tables(tmp_path: Path, write_run: WriteRun) -> None:
    spec = AttentionSpec("dna")
    write_run(tmp_path, spec, 0, {"val/top1": (0.5, 5), "test/top1": (0.6, 10)})
    write_run(tmp_path, spec, 0, {"test/top1": (0.7, 10)}, folder="w", backbone={"name": "vit_digits", "size": "tiny"})
    write_run(tmp_path, spec, 0, {"test/top1": (0.8, 10)}, folder="s", data={"name": "digits", "counts": {}, "subset": 40})
    titles = [table.title for table in build_report([tmp_path]).tables]
    assert sorted(titles) == [
        "digits: vit_digits, subset of 40, test",
        "digits: vit_digits, test",
        "digits: vit_digits, tiny, test",
        "digits: vit_digits, val",
    ]
    assert titles.index("digits: vit_digits, test") < titles.index("digits: vit_digits, val")


def test_toy_runs_stand_alone_and_last(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, AttentionSpec("softmax"), 0, {"test/top1": (0.1, 8)}, folder="toy", toy=True)
    write_run(tmp_path, AttentionSpec("dna"), 0, {"test/top1": (0.9, 360)})
    real, toy = build_report([tmp_path]).tables
    assert (real.heading, toy.heading) == ("digits: vit_digits, test", "toy data: digits: vit_digits, test")
    assert (cells(real)["attention"], cells(toy)["attention"]) == (["dna"], ["softmax"])
    assert toy.markdown().startswith("**toy data: ")


def test_unfinished_and_unreadable_runs_are_listed_and_in_no_table(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, AttentionSpec("dna"), 0, {"val/top1": (0.9, 10)})
    stopped = write_run(tmp_path, AttentionSpec("dna"), 1, {"val/top1": (0.1, 10)}, finished=False, epochs=3)
    (tmp_path / "started").mkdir()
    (tmp_path / "started/recipe.yaml").write_text("task: classification\n")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/result.json").write_text("{")
    report = build_report([tmp_path])
    assert cells(report.tables[0])["top1"] == ["90.00"]
    assert set(report.unfinished) == {f"{stopped}: stopped after 3 epochs, 60 steps", f"{tmp_path / 'started'}: no result yet"}
    assert len(report.unreadable) == 1
    assert str(tmp_path / "broken/result.json") in report.unreadable[0]


def test_conditions_that_differ_are_notes(tmp_path: Path, write_run: WriteRun) -> None:
    wide = {"resize": 64, "interpolation": "bicubic"}
    write_run(tmp_path, AttentionSpec("softmax"), 0, {"test/top1": (0.9, 360)})
    write_run(tmp_path, AttentionSpec("dna"), 0, {"test/top1": (0.9, 350)}, transform=wide, epochs=5, parameters=1)
    write_run(tmp_path, AttentionSpec("dna"), 1, {"val/top1": (0.9, 180)})
    report = build_report([tmp_path], ["test/top1"])
    notes = "\n".join(report.tables[0].notes)
    assert "sample counts differ: [360] (softmax seed 0); [350] (dna seed 0)" in notes
    assert "evaluation transforms differ: {'resize': 32} (softmax seed 0); {'resize': 64} (dna seed 0)" in notes
    assert "training epochs differ: 20 (softmax seed 0); 5 (dna seed 0)" in notes
    assert "dna: 1 of 2 seeds have test/top1" in notes
    assert "dna: seeds differ in their number of parameters" in notes


def test_a_metric_of_its_own_transform_is_compared_by_that(tmp_path: Path, write_run: WriteRun) -> None:
    for name in ("softmax", "dna"):
        path = write_run(tmp_path, AttentionSpec(name), 0, {"val/top1": (0.9, 10), "test/top1": (0.9, 10)})
        if name == "dna":
            result = json.loads((path / "result.json").read_text())
            result["metrics"]["test/top1"]["transform"] = {"resize": 64, "interpolation": "bicubic"}
            (path / "result.json").write_text(json.dumps(result))
    test, val = build_report([tmp_path]).tables
    assert test.notes == ["evaluation transforms differ: {'resize': 32} (softmax seed 0); {'resize': 64} (dna seed 0)"]
    assert val.notes == []


def test_one_seed_counts_once(tmp_path: Path, write_run: WriteRun) -> None:
    first = write_run(tmp_path, AttentionSpec("dna"), 0, {"test/top1": (0.9, 10)}, folder="a")
    second = write_run(tmp_path, AttentionSpec("dna"), 0, {"test/top1": (0.5, 10)}, folder="b")
    (table,) = build_report([tmp_path, tmp_path / "a", tmp_path / "b"]).tables
    assert cells(table)["top1"] == ["90.00"]
    assert table.notes == [f"dna seed 0 is there twice: {first} is shown, {second} is not"]


def test_a_value_that_is_no_number_is_no_mean(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, AttentionSpec("dna"), 0, {"val/top1": (0.9, 10), "val/loss": (float("nan"), 10)})
    write_run(tmp_path, AttentionSpec("dna"), 1, {"val/top1": (0.9, 10), "val/loss": (0.5, 10)})
    assert cells(build_report([tmp_path]).tables[0])["loss"] == ["-"]


def test_chosen_metrics_and_wrong_names(tmp_path: Path, write_run: WriteRun) -> None:
    metrics = {"val/top1": (0.9, 5), "test/top1": (0.8, 10), "test/top5": (1.0, 10)}
    write_run(tmp_path, AttentionSpec("dna"), 0, metrics)
    assert [table.headers[2:-3] for table in build_report([tmp_path], ["top1"]).tables] == [["top1"], ["top1"]]
    assert [table.headers[2:-3] for table in build_report([tmp_path], ["test/top5"]).tables] == [["top5"]]
    with pytest.raises(UnknownName, match="did you mean 'test/top1'"):
        build_report([tmp_path], ["tst/top1"])


def test_nothing_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DnaError, match="no run below"):
        build_report([tmp_path])
    with pytest.raises(DnaError, match="no folder"):
        build_report([tmp_path / "missing"])


def test_terminal_text_stays_within_its_width_and_repeats_the_first_column() -> None:
    table = Table("wide", notes=["one"])
    table.add("attention", ["softmax", "dna"])
    for name in ("top1", "top5", "a/aurra"):
        table.add(name, ["97.00 ± 1.00", "98.33 ± 0.58"])
        table.add("gain", ["", "+1.33"])
    assert table.text(44).splitlines() == [
        "wide",
        "",
        "attention          top1   gain",
        "------------------------------",
        "softmax    97.00 ± 1.00",
        "dna        98.33 ± 0.58  +1.33",
        "",
        "attention          top5   gain",
        "------------------------------",
        "softmax    97.00 ± 1.00",
        "dna        98.33 ± 0.58  +1.33",
        "",
        "attention       a/aurra   gain",
        "------------------------------",
        "softmax    97.00 ± 1.00",
        "dna        98.33 ± 0.58  +1.33",
        "note: one",
    ]
    assert len(table.text(200).splitlines()) == 7
    assert table.markdown().splitlines()[2:5] == [
        "| attention | top1 | gain | top5 | gain | a/aurra | gain |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| softmax | 97.00 ± 1.00 |  | 97.00 ± 1.00 |  | 97.00 ± 1.00 |  |",
    ]


def test_numbers_as_text() -> None:
    assert [quantity(number) for number in (None, 12, 1_000, 142_900, 100_742_008, 21_086_755_584)] == [
        "-",
        "12",
        "1.00 k",
        "142.90 k",
        "100.74 M",
        "21.09 G",
    ]
    assert measure(0.98765, None, True) == "98.77"
    assert measure(0.0512345, 0.00123, False) == "0.05123 ± 0.0012"
    assert difference(0.97, 0.98) == "-1.00"
    assert difference(0.10, 0.12, -1.0) == "+2.00"


def test_tables_go_between_markers_only() -> None:
    document = f"before\n{START}\nold\n{END}\nafter\n"
    assert place(document, "new") == f"before\n{START}\n\nnew\n\n{END}\nafter\n"
    assert place(place("", "old"), "new") == f"{START}\n\nnew\n\n{END}\n"
    with pytest.raises(DnaError, match="holds text"):
        place("my notes", "new")


def test_rows_that_started_from_other_weights_are_noted(tmp_path: Path, write_run: WriteRun) -> None:
    metrics = {"test/top1": (0.5, 10)}
    for name, path in (("softmax", "a/seed0"), ("dna", "b/seed0")):
        write_run(tmp_path, AttentionSpec(name), 0, metrics, init_from={"path": path, "recipe": "imagenet_vit"})
    (table,) = build_report([tmp_path]).tables
    assert table.notes == []
    write_run(tmp_path, AttentionSpec("cog"), 0, metrics, init_from={"path": "vit.safetensors", "recipe": None})
    write_run(tmp_path, AttentionSpec("dna-q"), 0, metrics)
    (table,) = build_report([tmp_path]).tables
    assert table.notes == [
        "starting weights differ: imagenet_vit (softmax seed 0, dna seed 0); none (dna-q seed 0); vit.safetensors (cog seed 0)"
    ]


def test_a_checkpoint_chosen_on_the_test_part_is_noted(tmp_path: Path, write_run: WriteRun) -> None:
    for name, seen in (("softmax", True), ("dna", False)):
        folder = write_run(tmp_path, AttentionSpec(name), 0, {"test/top1": (0.5, 10), "val/top1": (0.5, 10)})
        record = json.loads((folder / "result.json").read_text())
        record["training"]["selected_on_test"] = seen
        (folder / "result.json").write_text(json.dumps(record))
    test, val = build_report([tmp_path]).tables
    assert test.notes == ["softmax: the checkpoint was chosen on the test part itself; data.holdout takes one of train"]
    assert val.notes == []
