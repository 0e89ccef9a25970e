"""A paper's numbers next to our curves."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.image import imread

from fedrun.data.targets import Target
from fedrun.runs.display import panels
from fedrun.runs.display.panels import (
    Line,
    Published,
    add_legend,
    explain_dashes,
    mark_targets,
    plot_curves,
    plot_panels,
)
from fedrun.system.errors import InputError

from ...helpers.run_folders import rows


def drawn(monkeypatch: pytest.MonkeyPatch, against: panels.Against, published: tuple[Published, ...]) -> Figure:
    figures: list[Figure] = []
    monkeypatch.setattr(panels, "save_figure", lambda figure, path, dpi: figures.append(figure))
    targets = (Target.of(0.5), Target.of("test/f1:0.7"))
    lines = {"fedavg": Line([rows(0.1, 0.8)], published), "fedprox": Line([rows(0.2, 0.7)])}
    plot_panels({(("test/accuracy",), "accuracy"): lines}, Path("unused.png"), against, "title", targets)
    return figures[0]


def stars(figure: Figure) -> list[ErrorbarContainer]:
    return [container for container in figure.axes[0].containers if isinstance(container, ErrorbarContainer)]


def test_numbers_are_stars_of_the_lines_colour_with_their_deviations(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn(monkeypatch, "rounds", (Published(5, 0.84, value_std=0.02), Published(3, 0.6, round_std=1.5)))
    ours = next(line for line in figure.axes[0].lines if line.get_label() == "fedavg")
    found = []
    for star in stars(figure):
        marker, _, (bar,) = star.lines
        assert marker.get_color() == ours.get_color()
        assert marker.get_marker() == "*"
        found.append((*np.ravel(marker.get_data()), *np.ptp(bar.get_segments()[0], axis=0)))
    np.testing.assert_allclose(found, [(5, 84, 0, 4), (3, 60, 3, 0)], atol=1e-9)  # percent; bars of two deviations
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedavg", "fedprox", "the paper"]


def test_on_a_cost_a_number_is_where_our_runs_are_in_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn(monkeypatch, "params", (Published(0.5, 0.84, round_std=0.25), Published(1.5, 0.9)))
    (star,) = stars(figure)  # the other one is after our last round
    marker, _, (bar,) = star.lines
    np.testing.assert_allclose(marker.get_xydata(), [(15, 84)])  # 30 parameters per round
    np.testing.assert_allclose(bar.get_segments()[0], [(7.5, 84), (22.5, 84)])


@pytest.mark.parametrize(
    ("against", "published"), [("seconds", (Published(1, 0.84),)), ("params", (Published(5, 0.84),)), ("rounds", ())]
)
def test_no_stars(monkeypatch: pytest.MonkeyPatch, against: panels.Against, published: tuple[Published, ...]) -> None:
    """A number of a round has no place in our time, nor on a cost after our last round."""
    figure = drawn(monkeypatch, against, published)
    assert not stars(figure)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedavg", "fedprox"]


def test_only_targets_of_its_metric_are_marked_in_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [text.get_text() for text in drawn(monkeypatch, "rounds", ()).axes[0].texts] == ["50 %"]


def test_nothing_to_draw() -> None:
    lines = {"a": Line([[{"round": 0, "test/f1": 0.5}]])}
    with pytest.raises(InputError, match=r"^test/f1 against params: no run has both in any round$"):
        plot_panels({(("test/f1",), "F1"): lines}, Path("unused.png"), "params")


def row(number, value=0.5, **more):
    names = ("test/accuracy", "test/f1", "test/mcc", "test/loss", "train/loss")
    return {"round": number, **dict.fromkeys(names, value), **more}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("runs", "grid"),
    [
        ({"one point": [[row(0)]]}, (2, 2)),
        ({"three seeds": [[row(0), row(1, 0.1 * seed)] for seed in range(3)]}, (2, 2)),
        ({"a": [[row(0)]], "b": [[row(0), row(9)], []]}, (2, 2)),
        ({"appeal": [[row(0, **{"clients/gm_appeal": 0.2})]]}, (2, 3)),
        ({"diverged": [[row(0), row(1, 1e30), row(2, math.inf), row(3, math.nan), row(4, None)]]}, (2, 2)),
        ({"all nan": [[row(0, math.nan)]]}, (1, 1)),
        ({"nothing yet": [[]]}, (1, 1)),
        ({}, (1, 1)),
    ],
)
def test_whatever_was_recorded_is_drawn(tmp_path, runs, grid):
    path = tmp_path / "curves.png"
    plot_curves(runs, path, (Target.of(0.5), Target.of(0.7)))
    height, width, _ = imread(path).shape
    lines, columns = grid
    # 160 dots per inch; a panel takes 3.9 by 2.8 inches, margins 0.6 and 1.3.
    assert (width, height) == (round(160 * (0.6 + 3.9 * columns)), round(160 * (1.3 + 2.8 * lines)))


def test_the_colours_of_both_runs_and_no_more_are_on_the_paper(tmp_path):
    path = tmp_path / "curves.png"
    plot_curves({"a": [[row(0, 0.1), row(9, 0.9)]], "b": [[row(0, 0.2), row(9, 0.3)]]}, path, ())
    pixels = set(np.unique(np.rint(255 * imread(path)[..., :3]).astype(int) @ [0x10000, 0x100, 1]).tolist())
    blue, vermilion, green = 0x0072B2, 0xD55E00, 0x009E73
    assert {blue, vermilion} <= pixels
    assert green not in pixels


def test_the_legend_names_what_any_panel_shows(tmp_path, monkeypatch):
    """Once each: b has no curve in the first panel, and a has two lines in the second one."""
    figures = []
    monkeypatch.setattr(panels, "save_figure", lambda figure, path, dpi: figures.append(figure))
    plot_curves({"a": [[row(0)]], "b": [[{"round": 0, "train/loss": 1.0}]]}, tmp_path / "curves.png", ())
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["a", "b"]


WILD = r"data_dir=/tmp/$\zz$a"
"""Names an unknown command in a formula, to matplotlib's parser."""


@pytest.mark.parametrize("labels", [(WILD,), (WILD, "b"), ("a", "$^$ 0.5$")])
def test_a_dollar_in_a_label_is_no_formula(tmp_path, labels):
    plot_curves({label: [[row(0), row(1)]] for label in labels}, tmp_path / "a.png", [])
    assert imread(tmp_path / "a.png").ndim == 3


def test_a_dollar_in_a_title_and_in_a_metric_is_no_formula(tmp_path):
    key = r"test/$\zz$"
    lines = {WILD: Line([[{"round": 0, key: 1.0}, {"round": 1, key: 2.0}]])}
    plot_panels({((key,), key): lines}, tmp_path / "a.png", "rounds", WILD, [Target(key, 1.5)])
    assert imread(tmp_path / "a.png").ndim == 3


def test_solid_lines_are_named_for_what_was_evaluated():
    def named(*parts):
        axes = Figure().add_subplot()
        explain_dashes(axes, parts)
        legend = axes.get_legend()
        return legend and [text.get_text() for text in legend.get_texts()]

    assert named("test", "train") == ["test", "train"]
    assert named("validation", "train") == ["validation", "train"]
    assert named("test") is named("train") is None


def test_plotting_leaves_matplotlib_as_it_was(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    plot_curves({"a": [[row(0)]]}, tmp_path / "curves.png", (Target.of(0.5),))
    assert dict(matplotlib.rcParams) == before


def test_the_name_of_a_target_at_the_top_is_below_its_line():
    axes = Figure().add_subplot()
    axes.plot([0, 1], [0.0, 40.0])
    mark_targets(axes, [Target.of(0.2), Target.of(0.9)])
    assert [(text.get_text(), text.get_va()) for text in axes.texts] == [("20 %", "bottom"), ("90 %", "top")]


def test_names_of_targets_do_not_lie_on_one_another():
    """On an axis from -5 to 105, 50 and 52 % are a fifty-fifth of the height apart, 52 and 60 % a fourteenth."""
    axes = Figure().add_subplot()
    axes.plot([0, 1], [0.0, 100.0])
    mark_targets(axes, [Target.of(0.99), Target.of(0.6), Target.of(0.52), Target.of(0.5), Target.of(0.97)])
    places = [(text.get_text(), round(text.xy[1], 9), text.get_va()) for text in axes.texts]
    assert places == [("50 %, 52 %", 52.0, "bottom"), ("60 %", 60.0, "bottom"), ("97 %, 99 %", 97.0, "top")]
    assert sorted(round(line.get_ydata()[0], 9) for line in axes.lines[1:]) == [50, 52, 60, 97, 99]


def test_names_of_targets_on_a_logarithmic_axis():
    """From 0.001 to 10, 0.1 and 0.15 are a twenty-third of the height apart, 0.1 and 0.2 a thirteenth."""
    axes = Figure().add_subplot()
    axes.set_yscale("log")
    axes.set_ylim(0.001, 10)
    mark_targets(
        axes, [Target.of(f"test/loss:{loss}") for loss in (0.0, 0.1, 0.15, 0.02, 9)] + [Target.of("train/loss:0.04")]
    )
    assert [(text.get_text(), text.get_va()) for text in axes.texts] == [
        ("test loss 0.02", "bottom"),
        ("train loss 0.04", "bottom"),
        ("test loss 0.1, test loss 0.15", "bottom"),
        ("test loss 9", "top"),
    ]


@pytest.mark.parametrize(
    ("labels", "columns", "lines"),
    [
        # In 7.8 inches. A column takes 0.55 inches and 0.085 for each letter: 2.335 for 21 letters, 1.06 for six.
        ([f"fedprox local.lr={number:4d}" for number in range(12)], 3, 4),
        (["fedavg", "fedadam"], 2, 1),
        # 85 letters fit: two labels of 100 letters have two lines each.
        (["word " * 20, "more " * 20], 1, 4),
    ],
)
def test_a_legend_has_as_many_columns_as_fit_and_the_figure_grows_by_its_lines(labels, columns, lines):
    figure = Figure(figsize=(7.8, 4.0), layout="constrained")
    for label in labels:
        figure.add_subplot().plot([0, 1], label=label)
    add_legend(figure)
    assert figure.legends[0]._ncols == columns
    assert figure.get_size_inches() == pytest.approx((7.8, 4.0 + 0.2 * (lines - 1)))
    written = [text.get_text() for text in figure.legends[0].get_texts()]
    assert " ".join(" ".join(written).split()) == " ".join(" ".join(labels).split())
