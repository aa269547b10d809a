"""The pictures of a robustness test: what is drawn is what the metrics say."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from dna_suite.errors import DnaError, MissingExtra
from dna_suite.metrics.calibration import reliability
from dna_suite.runs.robustness_figures import (
    CURVE_POINTS,
    OVER,
    UNDER,
    draw_corruptions,
    draw_reliability,
    draw_response_rates,
    plot_corruptions,
    plot_reliability,
    plot_response_rates,
)

Answers = tuple[np.ndarray, np.ndarray]
DRAW = {
    "reliability.png": lambda folder: draw_reliability(folder, {"toy": answers(240)}, "title"),
    "response_rate.png": lambda folder: draw_response_rates(folder, {"toy": answers(240)}, "title"),
    "corruptions.png": lambda folder: draw_corruptions(folder, {"fog": {1: 0.5}}, "title"),
}


def answers(number: int) -> Answers:
    """Answers that are right as often as the square of their confidence: over-confident."""
    random = np.random.default_rng(number)
    confidence = random.uniform(0.2, 1, number)
    return confidence, random.random(number) < confidence**2


def words(axes: Any) -> str:
    return " ".join(" ".join(text.get_text() for text in axes.texts).split())


def lines(axes: Any) -> dict[str, dict[int, float]]:
    return {line.get_label(): dict(zip(*line.get_data(), strict=True)) for line in axes.lines}


@pytest.mark.parametrize(("name", "draw"), DRAW.items())
def test_a_file_is_a_picture_and_nothing_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, draw: Callable[[Path], None]
) -> None:
    draw(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with Image.open(tmp_path / name) as picture:
        assert picture.format == "PNG"
        picture.load()
    before = (tmp_path / name).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", save_half)
        with pytest.raises(OSError, match="disk full"):
            draw(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == before
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match="matplotlib is not installed"):
        draw(tmp_path)


def save_half(figure: Any, path: Path, **options: object) -> None:
    path.write_bytes(b"half")
    raise OSError("disk full")


@pytest.mark.parametrize("number", [240, 7500])
def test_a_panel_shows_the_bins_and_their_gaps(number: int) -> None:
    confidence, correct = answers(number)
    (axes,) = plot_reliability({"ImageNet-A": (confidence, correct)}, "title").axes
    bins = reliability(confidence, correct)
    # 100 a bin; the last one takes the 40 that are left of 240.
    assert len(bins.samples) == {240: 2, 7500: 75}[number]
    gaps, dots = axes.collections
    np.testing.assert_array_equal(dots.get_offsets(), np.stack([bins.confidence, bins.accuracy], 1))
    ends = [np.sort(segment[:, 1]) for segment in gaps.get_segments()]
    np.testing.assert_array_equal(ends, np.sort(np.stack([bins.confidence, bins.accuracy], 1)))
    (diagonal,) = axes.lines
    assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
    assert axes.get_title(loc="left") == "ImageNet-A"
    assert axes.get_xlim() == axes.get_ylim() == (0, 1)


def test_the_words_of_a_panel_are_the_errors_and_the_colours_their_signs() -> None:
    # Two bins of 100, 0.5 with 40 right and 0.75 with 95: gaps 0.1 and 0.2, so RMSCE sqrt(0.01 / 2), with the last bin
    # sqrt(0.01 / 2 + 0.04 / 2).
    confidence, correct = np.repeat([0.5, 0.75], 100), np.repeat([True, False, True, False], [40, 60, 95, 5])
    figure = plot_reliability({"toy": (confidence, correct)}, "title")
    (axes,) = figure.axes
    assert words(axes) == "RMSCE 7.1 %, with last bin 15.8 % 200 pictures, 2 bins"
    assert [to_hex(colour).upper() for colour in axes.collections[1].get_facecolors()] == [OVER, UNDER]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "calibrated",
        "over-confident bin",
        "under-confident bin",
    ]


@pytest.mark.filterwarnings("error")
def test_a_set_of_less_than_two_bins_gets_words() -> None:
    sets = {"none": answers(0), "one": answers(1), "small": answers(20), "single": (np.full(100, 0.5), np.arange(100) < 60)}
    panels = plot_reliability(sets, "title").axes
    assert [words(axes) for axes in panels] == [
        "0 pictures: fewer than a bin of 100",
        "1 picture: fewer than a bin of 100",
        "20 pictures: fewer than a bin of 100",
        "RMSCE n/a, with last bin 10.0 % 100 pictures, 1 bin",
    ]
    assert [len(axes.collections) for axes in panels] == [0, 0, 0, 2]


@pytest.mark.parametrize(("number", "grid"), [(1, (1, 1)), (4, (1, 4)), (5, (2, 3)), (9, (3, 3))])
def test_panels_are_in_rows_of_at_most_four(number: int, grid: tuple[int, int]) -> None:
    panels = plot_reliability({f"set {place}": answers(3) for place in range(number)}, "title").axes
    assert len(panels) == number
    assert {axes.get_subplotspec().get_gridspec().get_geometry() for axes in panels} == {grid}


def test_a_confidence_that_is_not_finite_is_an_error() -> None:
    confidence, correct = answers(150)
    confidence[3] = np.nan
    with pytest.raises(DnaError, match="1 of 150 confidences are not finite"):
        plot_reliability({"toy": (confidence, correct)}, "title")


def test_a_curve_goes_from_the_surest_answer_to_all_of_them() -> None:
    # Surest first: right, right, wrong, right.
    sets = {"toy": (np.array([0.6, 0.7, 0.9, 0.8]), np.array([True, False, True, True])), "large": answers(30_000)}
    figure = plot_response_rates(sets, "title")
    toy, large = figure.axes[0].lines
    assert toy.get_xdata().tolist() == [25, 50, 75, 100]
    assert toy.get_ydata() == pytest.approx([100, 100, 200 / 3, 75])
    # AURRA is the mean of the four.
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[0] == "toy: 85.4 %"
    assert toy.get_color() != large.get_color()

    confidence, correct = sets["large"]
    rate, accuracy = large.get_data()
    assert len(rate) == CURVE_POINTS
    assert rate[0] == 100 / 30_000
    assert rate[-1] == 100
    assert accuracy[-1] == pytest.approx(100 * correct.mean())
    # A point between stands for the accuracy at its own rate, not at its place among those drawn.
    kept = round(rate[700] * 300)
    assert accuracy[700] == pytest.approx(100 * correct[np.argsort(-confidence)[:kept]].mean())


def test_curves_of_many_sets_differ_in_colour_or_dashes() -> None:
    curves = plot_response_rates({f"set {number}": answers(5) for number in range(20)}, "title").axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in curves}) == 20


def test_corruptions_are_in_the_panels_of_their_families() -> None:
    top1 = {
        "spatter": {1: 0.4, 5: 0.0},
        "fog": {5: 0.3, 1: 0.7},
        "gaussian_noise": {1: 0.5, 2: 0.45, 5: 0.1},
        "snow": {1: 0.6, 5: 0.2},
        "frost": {},
    }
    figure = plot_corruptions(top1, "title")
    # Of the severities that all four have; frost has none and counts for nothing.
    mean = {1: pytest.approx(55), 5: pytest.approx(15)}
    assert {axes.get_title(loc="left"): lines(axes) for axes in figure.axes} == {
        "noise": {"mean of all 4": mean, "gaussian noise": {1: 50, 2: 45, 5: 10}},
        "weather": {"mean of all 4": mean, "snow": {1: 60, 5: 20}, "fog": {1: 70, 5: 30}},
        "other": {"mean of all 4": mean, "spatter": {1: 40, 5: 0}},
    }
    for axes in figure.axes:
        assert axes.get_ylim() == (0, 100)
        assert [text.get_text() for text in axes.get_legend().get_texts()] == list(lines(axes))
        assert all(list(points) == sorted(points) for points in lines(axes).values())


def test_types_without_a_common_severity_have_no_mean() -> None:
    (axes,) = plot_corruptions({"fog": {1: 0.5}, "snow": {2: 0.25}}, "title").axes
    assert lines(axes) == {"snow": {2: 25}, "fog": {1: 50}}
    (axes,) = plot_corruptions({"fog": {1: 0.5}}, "title").axes
    assert lines(axes) == {"fog": {1: 50}}


def test_a_long_title_stays_inside_a_narrow_figure() -> None:
    title = "robustness, a title of many words: dna, folder/of/runs/imagenet_vit/dna/seed0"
    figure = plot_corruptions({"fog": {1: 0.5}}, title)
    box = figure._suptitle.get_window_extent()
    assert figure.get_suptitle().split() == title.split()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
