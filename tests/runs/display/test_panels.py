"""A paper's numbers next to our curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from fedrun.data.targets import Target
from fedrun.runs.display import panels
from fedrun.runs.display.panels import Line, Published, plot_panels
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
