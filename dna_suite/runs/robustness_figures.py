"""Pictures of a robustness test, where matplotlib is installed: calibration, what a threshold buys, and corruptions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dna_suite.metrics.calibration import BIN, aurra, calibration_error, reliability, response_curve
from dna_suite.runs.figures import find_matplotlib, save_figure

# The families of ImageNet-C's corruptions, as its archives group them; any other type is in the panel "other".
FAMILIES = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
OTHER = "other"
# Okabe and Ito's colours without the yellow, which is too light for a line: colour-blind readers tell them apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
UNDER, OVER = COLOURS[:2]
LINE_STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# More points than pixels make the file larger, not the curve clearer.
CURVE_POINTS = 2000
PANELS_IN_A_ROW = 4
TICKS = (0, 0.25, 0.5, 0.75, 1)
# With more bins their dots run into each other.
LARGE_DOTS = 50


def draw_reliability(folder: Path, sets: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str) -> None:
    """Draw FOLDER/reliability.png: accuracy against confidence in the bins of each set.

    Args:
        folder: that of an evaluation.
        sets: by name, confidence [n], finite, and correct, bool [n]; at least one set.
        title: what was tested.

    Raises:
        MissingExtra: matplotlib is not installed.
        DnaError: a confidence is not finite.
    """
    save_figure(plot_reliability(sets, title), folder / "reliability.png")


def draw_response_rates(folder: Path, sets: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str) -> None:
    """Draw FOLDER/response_rate.png: accuracy among the most confident pictures of each set, by the share that is answered.

    Args:
        folder: that of an evaluation.
        sets: by name, confidence [n], finite, and correct, bool [n]; at least one set.
        title: what was tested.

    Raises:
        MissingExtra: matplotlib is not installed.
        DnaError: a confidence is not finite, or a set has no picture.
    """
    save_figure(plot_response_rates(sets, title), folder / "response_rate.png")


def draw_corruptions(folder: Path, top1: Mapping[str, Mapping[int, float]], title: str) -> None:
    """Draw FOLDER/corruptions.png: top-1 by severity for each type of corruption, a panel for each family.

    Args:
        folder: that of an evaluation.
        top1: by type and severity, 1 to 5, a fraction; at least one.
        title: what was tested.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    save_figure(plot_corruptions(top1, title), folder / "corruptions.png")


def plot_reliability(sets: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str) -> Any:
    """The figure of `draw_reliability`; its arguments are those."""
    figure, panels = _new_panels(len(sets), title, "accuracy", width=3.0, height=3.7)
    for axes, (name, (confidence, correct)) in zip(panels, sets.items(), strict=True):
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", box_aspect=1)
        axes.set(xticks=TICKS, xticklabels=TICKS, yticks=TICKS, yticklabels=TICKS)
        axes.set_title(name, loc="left", fontsize=10, fontweight="bold", pad=30)
        if len(confidence) < BIN:
            words = f"{_count(len(confidence), 'picture')}:\nfewer than a bin of {BIN}"
            axes.text(0.5, 0.5, words, ha="center", va="center", fontsize=9, color="dimgrey")
            continue
        _plot_bins(axes, confidence, correct)
        axes.text(0, 1.02, _describe(confidence, correct), transform=axes.transAxes, va="bottom", fontsize=8)
    _add_reliability_legend(figure)
    return figure


def plot_response_rates(sets: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str) -> Any:
    """The figure of `draw_response_rates`; its arguments are those."""
    figure = find_matplotlib()(figsize=(8.5, 4.8), layout="constrained")
    axes = figure.subplots()
    for number, (name, (confidence, correct)) in enumerate(sets.items()):
        curve = response_curve(confidence, correct)
        shown = np.linspace(0, len(curve) - 1, min(len(curve), CURVE_POINTS), dtype=np.int64)
        rate = 100 * (shown + 1) / len(curve)
        label = f"{name}: {100 * aurra(confidence, correct):.1f} %"
        axes.plot(rate, 100 * curve[shown], linewidth=1.4, label=label, **_choose_style(number))
    _set_title(figure, title)
    axes.set(xlim=(0, 100), ylim=(0, 101))
    axes.set(xlabel="response rate (%), most confident first", ylabel="accuracy of the answers (%)")
    axes.grid(color="0.9", linewidth=0.6)
    figure.legend(loc="outside right center", title="AURRA", fontsize=9, frameon=False)
    return figure


def plot_corruptions(top1: Mapping[str, Mapping[int, float]], title: str) -> Any:
    """The figure of `draw_corruptions`; its arguments are those."""
    top1 = {name: dict(sorted(points.items())) for name, points in top1.items() if points}
    families = _sort_families(top1)
    figure, panels = _new_panels(len(families), title, "top-1 (%)", width=2.8, height=4.6)
    mean = _mean_of_types(top1) if len(top1) > 1 else {}
    # Unclipped: points of 0 or 100 % lie on the frame.
    style = {"marker": "o", "color": "0.75", "linewidth": 5, "clip_on": False, "label": f"mean of all {len(top1)}"}
    for axes, (family, types) in zip(panels, families.items(), strict=True):
        if mean:
            axes.plot(list(mean), _percent(mean), **style)
        for number, name in enumerate(types):
            axes.plot(
                list(top1[name]),
                _percent(top1[name]),
                **_choose_style(number),
                marker=MARKERS[number % len(MARKERS)],
                markersize=4,
                linewidth=1.3,
                clip_on=False,
                label=name.replace("_", " "),
            )
        axes.set(xlim=(0.7, 5.3), ylim=(0, 100), xticks=range(1, 6), xlabel="severity")
        axes.set_title(family, loc="left", fontsize=10, fontweight="bold")
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        # Below the axes: inside, strong models have lines above and weak ones below.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=8, frameon=False)
    return figure


def _plot_bins(axes: Any, confidence: np.ndarray, correct: np.ndarray) -> None:
    """A dot for each bin and a line from it to the diagonal: its length is the gap, its colour the gap's sign."""
    bins = reliability(confidence, correct)
    few = len(bins.samples) <= LARGE_DOTS
    colours = np.where(bins.accuracy < bins.confidence, OVER, UNDER)
    axes.plot([0, 1], [0, 1], "--", color="0.4", linewidth=1, zorder=1)
    axes.vlines(bins.confidence, bins.accuracy, bins.confidence, colors=colours, linewidth=0.8, alpha=0.5 if few else 0.25)
    # Unclipped: a bin that is always right or wrong lies on the frame.
    axes.scatter(bins.confidence, bins.accuracy, s=14 if few else 6, c=colours, linewidths=0, zorder=3, clip_on=False)


def _describe(confidence: np.ndarray, correct: np.ndarray) -> str:
    """RMSCE as published and with the last bin, and what it is of; of one bin the published one leaves nothing."""
    bins = len(confidence) // BIN
    published = f"{100 * calibration_error(confidence, correct):.1f} %" if bins > 1 else "n/a"
    every = 100 * calibration_error(confidence, correct, last_bin=True)
    return f"RMSCE {published}, with last bin {every:.1f} %\n{_count(len(confidence), 'picture')}, {_count(bins, 'bin')}"


def _add_reliability_legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color="0.4", linewidth=1, linestyle="--", label="calibrated"),
        Line2D([], [], color=OVER, linewidth=0.8, marker="o", markersize=4, label="over-confident bin"),
        Line2D([], [], color=UNDER, linewidth=0.8, marker="o", markersize=4, label="under-confident bin"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9, frameon=False)


def _new_panels(number: int, title: str, ylabel: str, width: float, height: float) -> tuple[Any, list[Any]]:
    """A figure of panels of a size in inches, in rows as even as they get, and the panels, which share the y axis."""
    assert number, "a figure has a panel"
    rows = -(-number // PANELS_IN_A_ROW)
    columns = -(-number // rows)
    figure = find_matplotlib()(figsize=(max(5.0, 0.6 + width * columns), 0.8 + height * rows), layout="constrained")
    _set_title(figure, title)
    panels: list[Any] = []
    for place in range(number):
        panels.append(figure.add_subplot(rows, columns, place + 1, sharey=panels[0] if panels else None))
        if place % columns:
            panels[-1].tick_params(labelleft=False)
        else:
            panels[-1].set_ylabel(ylabel)
    return figure, panels


def _set_title(figure: Any, title: str) -> None:
    # Some ten characters of this size are an inch; the layout makes room above for lines, not beside.
    figure.suptitle(textwrap.fill(title, int(10 * figure.get_figwidth())), fontsize=12)


def _choose_style(number: int) -> dict[str, str]:
    """A colour, and dashes where the colours are used up."""
    repeat, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": LINE_STYLES[repeat % len(LINE_STYLES)]}


def _sort_families(top1: Mapping[str, Mapping[int, float]]) -> dict[str, list[str]]:
    """The types of each family that has one, in the order of the families."""
    known = {name for types in FAMILIES.values() for name in types}
    families = {family: [name for name in types if name in top1] for family, types in FAMILIES.items()}
    families[OTHER] = [name for name in top1 if name not in known]
    return {family: types for family, types in families.items() if types}


def _mean_of_types(top1: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """The mean by severity, of those that every type has: between means of different types nothing can be compared."""
    common = set.intersection(*(set(points) for points in top1.values()))
    return {severity: float(np.mean([points[severity] for points in top1.values()])) for severity in sorted(common)}


def _percent(points: Mapping[int, float]) -> list[float]:
    return [100 * value for value in points.values()]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
