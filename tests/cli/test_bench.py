import json

import pytest

from dna_suite.cli.bench import run
from dna_suite.errors import DnaError, UnknownName


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lop"], r"unknown benchmark 'lop'.*'loop'"),
        (["loop", "--rounds", "0"], "--rounds 0: 1 or more"),
        (["attention", "--heads", "0"], "--heads 0: 1 or more"),
        (["loop", "--thread", "1"], "--thread"),
        (["loop", "--lengths", "197"], "--lengths belongs to dna bench attention, not to loop"),
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
        run(["lop"])


@pytest.mark.slow
def test_the_loop_benchmark_measures_as_many_steps_of_each_side(tmp_path, capsys):
    assert run(["loop", "--rounds", "2", "--threads", "1", "--out", str(tmp_path / "bench.json")]) == 0
    content = json.loads((tmp_path / "bench.json").read_text())
    loop = content["benchmarks"]["loop"]
    # 20 steps an epoch; the first three are warm-up.
    assert loop["pairs"] == 2 * 17
    assert loop["ratio_quartiles"][0] <= loop["ratio"] <= loop["ratio_quartiles"][2]
    assert content["environment"]["versions"]["torch"]
    assert "ratio" in capsys.readouterr().out
