"""YAML as data: no silent type changes, no key written twice, errors with file and line."""

from pathlib import Path

import pytest

from dna_suite.cli.yaml_text import read_document, read_value
from dna_suite.errors import DnaError


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1.0e-3", 0.001),
        ("0.001", 0.001),
        ("7", 7),
        ("-7", -7),
        ("no", "no"),
        ("on", "on"),
        ("010", "010"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("true", True),
        ("null", None),
        ("~", None),
        ('"7"', "7"),
        ("[1, 2.5, x]", [1, 2.5, "x"]),
        ("{alpha: 0.25}", {"alpha": 0.25}),
        ("1:-1", "1:-1"),
        ("", None),
    ],
)
def test_scalars_keep_their_meaning(text: str, value: object) -> None:
    # Lightning-AI/pytorch-lightning users lose numbers and words to YAML 1.1: `1e-3` is text there, `no` is False, `010` is 8.
    assert read_value(text) == value
    assert type(read_value(text)) is type(value)


def test_lines_of_nested_keys_are_kept(tmp_path: Path) -> None:
    document = read_document(write(tmp_path, "task: x\nmodel:\n  optim:\n    lr: 1e-3\n"))
    assert document.values == {"task": "x", "model": {"optim": {"lr": 0.001}}}
    assert document.lines == {"task": 1, "model": 2, "model.optim": 3, "model.optim.lr": 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {lr: 0.5}\ndata: {}\nmodel: {width: 3}\n", ":3: 'model' is written twice, first on line 1"),
        ("model:\n  a: 1\n  a: 2\n", ":3: 'a' is written twice, first on line 2"),
        ("- a\n- b\n", ":1: a recipe is a mapping of keys, this is a list"),
        ("model:\n\tlr: 1\n", ":2: a tab where YAML wants spaces"),
        ("model: [1, 2\n", ":2:"),
        ("model: &a {x: 1}\ndata:\n  <<: *a\n", ":3: a key is a plain word, not a merge"),
    ],
)
def test_malformed_files_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DnaError) as problem:
        read_document(write(tmp_path, text))
    assert message in str(problem.value)
    assert "\n" not in str(problem.value)


def test_an_empty_file_is_an_empty_recipe_and_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert read_document(write(tmp_path, "")).values == {}
    assert read_document(write(tmp_path, "\ufefftask: x\n")).values == {"task": "x"}


def test_a_missing_or_binary_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DnaError, match="cannot be read"):
        read_document(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DnaError, match="not UTF-8 text"):
        read_document(tmp_path / "binary.yaml")
