import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from fedrun.data.targets import Target
from fedrun.runs.display import panels
from fedrun.runs.display.curves import add_legend, curve, explain_dashes, mark_targets, spent
from fedrun.runs.display.panels import Line, plot_curves, plot_panels


def rows(**values):
    return [{"round": int(name[1:]), "test/loss": value} for name, value in values.items()]


def test_a_curve_is_the_mean_and_the_std_with_ddof_0_over_seeds():
    found = curve([rows(r0=1.0, r5=2.0), rows(r0=3.0, r5=2.0)], "test/loss")
    assert found.rounds.tolist() == [0, 5]
    assert found.mean.tolist() == [2.0, 2.0]
    assert found.std.tolist() == [1.0, 0.0]


def test_a_curve_has_a_gap_where_a_seed_has_no_finite_value():
    seeds = [rows(r0=1.0, r1=math.nan, r2=3.0, r3=4.0), rows(r0=1.0, r1=2.0, r2=5.0)]
    found = curve(seeds, "test/loss")
    assert found.rounds.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(found.mean, [1.0, math.nan, 4.0, math.nan])
    np.testing.assert_array_equal(found.std, [0.0, math.nan, 1.0, math.nan])


@pytest.mark.filterwarnings("error")
def test_a_curve_has_a_gap_where_the_sum_of_the_values_is_no_float():
    found = curve([rows(r0=1.7e308, r1=1.0), rows(r0=1.7e308, r1=3.0)], "test/loss")
    np.testing.assert_array_equal(found.mean, [math.nan, 2.0])
    np.testing.assert_array_equal(found.std, [math.nan, 1.0])
    assert curve([rows(r0=1.7e308), rows(r0=1.7e308)], "test/loss") is None


def test_an_estimate_stands_where_an_adaptive_evaluation_stopped_early():
    full = {"test/accuracy": 0.7, "test/f1": 0.6}
    early = [{"round": n, "test/accuracy_estimate": 0.1 * n, "test/evaluated": 256.0} for n in range(3)]
    one, other = [*early, {"round": 3, **full}], [*early[:2], {"round": 2, **full}, {"round": 3, **full}]
    accuracies = curve([one, other], "test/accuracy")
    assert accuracies.rounds.tolist() == [0, 1, 2, 3] and accuracies.estimated
    np.testing.assert_allclose(accuracies.mean, [0.0, 0.1, 0.45, 0.7])
    # One seed's round 2 has no F1: no gap, as nothing is wrong there, and no mean of the other alone.
    f1 = curve([one, other], "test/f1")
    assert (f1.rounds.tolist(), f1.mean.tolist(), f1.estimated) == ([3], [0.6], False)
    assert curve([other], "test/f1").rounds.tolist() == [2, 3]
    assert not curve([[{"round": 0, **full}]], "test/accuracy").estimated


def test_no_curve_without_finite_values():
    assert curve([rows(r0=math.nan, r1=math.inf, r2=None)], "test/loss") is None
    assert curve([[]], "test/loss") is None
    assert curve([], "test/loss") is None


def row(number, value=0.5, **more):
    names = ("test/accuracy", "test/f1", "test/mcc", "test/loss", "train/loss")
    return {"round": number, **dict.fromkeys(names, value), **more}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("runs", "panels"),
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
def test_whatever_was_recorded_is_drawn(tmp_path, runs, panels):
    path = tmp_path / "curves.png"
    plot_curves(runs, path, (Target.of(0.5), Target.of(0.7)))
    height, width, _ = imread(path).shape
    lines, columns = panels
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


COSTS = ("cost/params_up", "cost/params_down", "cost/client_samples")


def costly(number, up, down, samples, seconds, value=0.5):
    return {
        "round": number,
        "test/f1": value,
        **dict(zip(COSTS, (up, down, samples), strict=True)),
        "time/round_s": seconds,
    }


def test_what_the_rounds_cost():
    # Evaluated every other round: rounds 1 and 2 are taken to have lasted 0.5 s each, 3 and 4 1 s each, 5 2 s.
    found = [costly(0, 0, 0, 0, None), costly(2, 10, 20, 7, 0.5), costly(4, 20, 40, 9, 1.0), costly(5, 25, 50, 10, 2.0)]
    assert spent(found, "rounds") == [0, 2, 4, 5]
    assert spent(found, "params") == [0, 30, 60, 75]
    assert spent(found, "samples") == [0, 7, 9, 10]
    assert spent(found, "seconds") == [0, 1, 3, 5]


def test_a_curve_against_a_cost_stands_at_the_seeds_mean_cost():
    seeds = [
        [costly(0, 0, 0, 0, None, 0.1), costly(1, 1, 1, 10, 1.0, 0.4)],
        [costly(0, 0, 0, 0, None, 0.3), costly(1, 1, 1, 30, 3.0, 0.8), costly(2, 2, 2, 60, 1.0, 0.9)],
    ]
    found = curve(seeds, "test/f1", "samples")
    np.testing.assert_array_equal(found.x, [0, 20, math.nan])
    np.testing.assert_allclose(found.mean, [0.2, 0.6, math.nan])
    np.testing.assert_allclose(found.std, [0.1, 0.2, math.nan])
    assert curve(seeds, "test/f1", "seconds").x[1] == 2.0


def test_no_curve_against_what_was_not_recorded():
    assert curve([[{"round": 0, "test/f1": 0.5}]], "test/f1", "params") is None


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
