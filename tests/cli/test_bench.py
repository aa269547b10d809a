import json

import pytest

from dna_suite.cli.bench import run
from dna_suite.errors import DnaError, UnknownName


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], r"unknown benchmark 'trian'; did you mean 'train'"),
        (["train", "--rounds", "0"], "--rounds 0: 1 or more"),
        (["attention", "--heads", "0"], "--heads 0: 1 or more"),
        (["train", "--thread", "1"], "--thread"),
        (["train", "--lengths", "197"], "--lengths belongs to dna bench attention, not to train"),
        (["model", "--backbone", "vit_bas"], r"unknown backbone 'vit_bas' \(--backbone\); did you mean 'vit_base'"),
        (["model", "--size", "large"], r"unknown size of vit_base 'large' \(--size\)"),
        (["attention", "--operators", "dan"], r"unknown attention 'dan' \(--operators\); did you mean 'dna'"),
        (["attention", "--operators", "dna+fibonaci"], r"unknown attention pattern 'fibonaci' \(--operators\)"),
        (
            ["attention", "--lengths", "9", "12", "15", "--batch", "1", "2"],
            "--batch 1 2: one number, or one for each of 3 lengths",
        ),
        (["attention", "--lengths", "0"], "--lengths 0: numbers from 1"),
        (["attention", "--dtype", "int8"], "invalid choice: 'int8'"),
    ],
)
def test_wrong_words_are_one_line_before_anything_is_measured(words, message):
    with pytest.raises(DnaError, match=message) as caught:
        run(words)
    assert "\n" not in str(caught.value)


def test_an_unknown_benchmark_is_an_unknown_name():
    with pytest.raises(UnknownName):
        run(["trian"])


@pytest.mark.slow
def test_the_training_benchmark_measures_as_many_steps_of_each_side(tmp_path, capsys):
    assert run(["train", "--rounds", "2", "--threads", "1", "--out", str(tmp_path / "bench.json")]) == 0
    content = json.loads((tmp_path / "bench.json").read_text())
    train = content["benchmarks"]["train"]
    # The first three steps of an epoch are warm-up: of 20 in two epochs, and of 158 in ten.
    assert train["digits"]["rounds"] == 2 * 17
    assert train["linear_8"]["pairs"] == 10 * 155
    low, high = train["linear_8"]["added_cpu_ms_quartiles"]
    assert 0 < low <= train["linear_8"]["added_cpu_ms"] <= high
    assert content["environment"]["versions"]["torch"]
    assert "ms of CPU time to a step" in capsys.readouterr().out
