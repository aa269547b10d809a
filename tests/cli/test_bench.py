import json

import pytest

from dna_suite.cli.bench import run
from dna_suite.errors import DnaError, UnknownName


def test_wrong_words_are_one_line_before_anything_is_measured():
    with pytest.raises(UnknownName, match=r"unknown benchmark 'lop'.*'loop'"):
        run(["lop"])
    with pytest.raises(DnaError, match="--rounds 0: 1 or more"):
        run(["loop", "--rounds", "0"])
    with pytest.raises(DnaError, match="--thread"):
        run(["loop", "--thread", "1"])


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
