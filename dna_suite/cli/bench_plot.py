"""The plot of cost against length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dna_suite.runs.figures import find_matplotlib


def plot_growth(results: list[dict[str, Any]], slopes: list[dict[str, Any]], path: Path) -> None:
    """Writes time of a sample against tokens, on logarithmic axes; dashed beside each line, growth as the multiply-adds say.

    Args:
        results: as `bench_attention.measure` gives them.
        slopes: likewise.
        path: picture to write; its suffix is the format.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = find_matplotlib()(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    streams = [result for result in results if result["part"] == "streams"]
    for row in slopes:
        there = [result for result in streams if row["attention"] in result["subjects"]]
        tokens = [result["tokens"] for result in there]
        times = [result["subjects"][row["attention"]]["forward"]["ms"] / result["batch"] for result in there]
        name = f"{row['attention']} ({row['measured']:.2f})"
        (line,) = axes.plot(tokens, times, marker="o", markersize=3, label=name)
        counts = [result["subjects"][row["attention"]]["multiply_adds"] for result in there]
        if all(counts):
            expected = [times[-1] * count / counts[-1] for count in counts]
            axes.plot(tokens, expected, linestyle="--", linewidth=0.8, color=line.get_color())
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="ms for one sample, forward")
    lengths = sorted({result["tokens"] for result in streams})
    axes.set_xticks(lengths, labels=[str(length) for length in lengths])
    axes.minorticks_off()
    axes.set_title("cost against length; in brackets the measured power, dashed the multiply-adds")
    axes.legend(fontsize="x-small", ncols=2)
    figure.savefig(path, dpi=150)
