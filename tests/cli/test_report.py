"""`dna report` and `dna tables` through the real entry point."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dna_suite.cli.main import main
from dna_suite.runs.tables import END, START
from dna_suite.spec import AttentionSpec

WriteRun = Callable[..., Path]


@pytest.fixture
def runs(tmp_path: Path, write_run: WriteRun) -> Path:
    """Twenty runs: two attentions, ten seeds."""
    for seed in range(10):
        for name, value in (("softmax", 0.96), ("dna", 0.97)):
            metrics = {f"{split}/{metric}": (value, 360) for split in ("val", "test") for metric in ("top1", "top5", "loss")}
            write_run(tmp_path / "runs", AttentionSpec(name), seed, metrics)
    return tmp_path / "runs"


def test_tables_fit_a_terminal_and_hold_no_colour(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(runs), "--metric", "test/top1"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "digits: vit_digits, test",
        "",
        "attention      seeds          top1   gain  samples  parameters  multiply-adds",
        "-----------------------------------------------------------------------------",
        "softmax    10 values  96.00 ± 0.00             360    142.90 k         2.30 M",
        "dna        10 values  97.00 ± 0.00  +1.00      360    190.00 k         2.30 M",
    ]
    assert main(["report", str(runs)]) == 0
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "\x1b" not in out


def test_csv_holds_every_raw_value(runs: Path, write_run: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(
        runs, AttentionSpec("dna", options={"alpha": 0.3}), 0, {"val/top1": (0.1234567, 180)}, finished=False, folder="stopped"
    )
    assert main(["report", str(runs), "--csv", str(tmp_path / "all.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "all.csv").open()))
    assert len(rows) == 20 * 6 + 1
    (stopped,) = [row for row in rows if row["finished"] == "False"]
    assert (stopped["attention"], stopped["metric"], stopped["value"], stopped["samples"]) == (
        "dna",
        "val/top1",
        "0.1234567",
        "180",
    )
    assert json.loads(stopped["options"]) == {"alpha": 0.3}
    assert "stopped after 20 epochs" in capsys.readouterr().out


def test_a_broken_record_is_named_and_ends_with_one(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "digits/dna/seed3/result.json").write_text("{")
    assert main(["report", str(runs)]) == 1
    assert "digits/dna/seed3/result.json: cannot be read" in capsys.readouterr().out


def test_markdown_keeps_what_stands_around_its_markers(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "notes.md"
    document.write_text(f"# Mine\n{START}\n{END}\nthe end\n")
    assert main(["report", str(runs), "--metric", "test/top1", "--markdown", str(document)]) == 0
    text = document.read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith("the end\n")
    assert "| dna | 10 values | 97.00 ± 0.00 | +1.00 | 360 | 190.00 k | 2.30 M |" in text
    document.write_text("precious")
    capsys.readouterr()
    assert main(["report", str(runs), "--markdown", str(document)]) == 2
    assert capsys.readouterr().err.startswith(f"dna: {document} was not written: it holds text")
    assert document.read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "no folder nowhere"),
        (["."], "no run below ."),
        ([], "RUNS"),
        ([".", "--cvs", "x"], "did you mean --csv?"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_metric_that_no_run_has_is_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(runs), "--metric", "test/top2"]) == 2
    assert "unknown metric 'test/top2'; did you mean 'test/top" in capsys.readouterr().err


def test_a_terminal_without_unicode_gets_ascii(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["report", str(runs), "--metric", "test/top1"]) == 0
    sys.stdout.flush()
    assert b"97.00 +- 0.00" in raw.getvalue()


def test_a_report_needs_none_of_the_slow_imports(runs: Path) -> None:
    # They are what would take seconds; without them twenty runs are read and printed in 0.05 s of CPU time.
    code = (
        "import sys; from dna_suite.cli.main import main; code = main(sys.argv[1:]);"
        "loaded = {'torch', 'numpy', 'lightning', 'yaml', 'rich'} & sys.modules.keys();"
        "print(sorted(loaded), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, "report", str(runs)], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_tables_are_written_and_checked(
    runs: Path, write_run: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "README.md"
    document.write_text(f"before\n{START}\n{END}\nafter\n")
    words = ["tables", "--results", str(runs), "--document", str(document)]
    assert main([*words, "--check"]) == 1
    assert main(words) == 0
    assert main([*words, "--check"]) == 0
    assert "| dna |" in document.read_text()
    write_run(runs, AttentionSpec("dna-q"), 0, {"test/top1": (0.5, 360)})
    assert main([*words, "--check"]) == 1
    write_run(runs, AttentionSpec("dna-v"), 0, {"test/top1": (0.5, 360)}, finished=False)
    capsys.readouterr()
    assert main(words) == 2
    assert "stopped after" in capsys.readouterr().err
