"""The papers' figures: each names runs, metrics and coordinates that exist; and is drawn from the right runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedrun.config.composed import compose
from fedrun.config.options import options
from fedrun.report.papers import figure as figure_module
from fedrun.report.papers.cell_jobs import cell_configs
from fedrun.report.papers.described_tables import load_table
from fedrun.report.papers.figure import (
    draw_figure,
    figures,
    grouped,
    has_stand_ins,
    has_table,
    load_figure,
    of_experiment,
    of_table,
    published,
)
from fedrun.report.settings import leaves
from fedrun.runs.display.panels import Published
from fedrun.system.errors import InputError

from ...helpers.job_configs import job_config
from ...helpers.run_folders import rows

RECORDED = {
    *(f"test/{name}" for name in ("accuracy", "f1", "mcc", "loss")),
    *(f"{who}/{tuned}gm_appeal" for who in ("clients", "unseen") for tuned in ("", "tuned_")),
}


@pytest.mark.parametrize("name", figures())
def test_a_figure_is_of_runs_that_exist_and_each_line_is_one_setting(name):
    figure = load_figure(name)
    assert figure.experiment in options("experiment")
    assert set(figure.metrics) <= RECORDED
    if not has_table(figure):
        content = {"dataset": "", "strategy": "", **leaves(compose([f"experiment={figure.experiment}"]).config)}
        assert {*figure.where, *figure.panels, *figure.lines} <= content.keys()
        return
    reading = load_table(figure.experiment)
    cells = [cell for cell in reading.cells() if figure.holds(cell.coordinates)]
    assert cells
    asked: dict[tuple[str, ...], set[object]] = {}
    for cell in cells:
        assert {*figure.where} <= cell.coordinates.keys()
        place = tuple(cell.coordinates.get(key, "") for key in (*figure.panels, *figure.lines))
        asked.setdefault(place, set()).add(reading.conditions(cell, "full"))
    assert all(len(overrides) == 1 for overrides in asked.values()), asked


def test_a_figure_from_a_tables_runs(folders, tmp_path):
    table = load_table("turbosvm/table11").cells()
    for position, config in cell_configs("turbosvm/table11", "smoke").items():
        cell = table[position]
        if cell.strategy in ("fedavg", "moon") and cell.metric == "f1":
            folders.write(0, rows(0.1, 0.8), strategy=cell.strategy, config=config)
    runs = folders.found.runs
    assert len(runs) == 4  # two strategies with 1 and 2 epochs
    figure = load_figure("turbosvm/figure1")
    panels = of_table(figure, "smoke", runs)
    ((title, lines),) = panels.items()
    assert (title, sorted(lines)) == ("", ["fedavg E=1", "fedavg E=2"])
    assert published(figure, "smoke", panels) == {}  # digits stand in for the paper's data
    assert [run.config["local"]["epochs"] for line in lines.values() for run in line] == [1, 2]
    figure = load_figure("turbosvm/figure5")
    assert {title: sorted(lines) for title, lines in of_table(figure, "smoke", runs).items()} == {
        "E 1": ["fedavg", "moon"],
        "E 2": ["fedavg", "moon"],
    }
    assert [has_stand_ins(figure, scale) for scale in ("smoke", "full")] == [True, False]
    picture = tmp_path / "figure.png"
    assert "not known" in draw_figure("turbosvm/figure5", None, runs, picture)  # the scale of the runs
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"^figure turbosvm/figure5: no finished runs; .* scale=small$"):
        draw_figure("turbosvm/figure5", "small", runs, picture)


def test_the_papers_numbers_are_points_of_the_lines(folders):
    """FedUmf's table 1 has rounds to targets; FedConcat's an accuracy in the last round, its own in round 204."""
    for name, metric in (("fedumf/table1", "rounds_to_0.92"), ("fedconcat/table1", "accuracy")):
        cells = load_table(name).cells()
        for position, config in cell_configs(name, "full").items():
            cell = cells[position]
            at = {"#C=2", "iid"} & {cell.setting["partition"]} and cell.setting.get("C", "0.1") == "0.1"
            if at and cell.dataset != "cifar10" and cell.metric == metric and cell.strategy in ("fedavg", "fedconcat"):
                folders.write(0, rows(0.1, 0.8), strategy=cell.strategy, config=config)
    runs = folders.found.runs
    figure = load_figure("fedumf/figure4")
    points = published(figure, "full", of_table(figure, "full", runs))
    rounds = (6, 9, 11, 15, 23, 38)
    assert points["C 0.1", "fedavg", "test/accuracy"] == [
        Published(r, a) for r, a in zip(rounds, (0.92, 0.93, 0.94, 0.95, 0.96, 0.97), strict=True)
    ]
    figure = load_figure("fedconcat/figure_fmnist")
    panels = of_table(figure, "full", runs)
    assert panels["partition #C=2"].keys() == {"fedavg", "fedconcat"}
    points = published(figure, "full", panels)
    assert {line: own for (panel, line, _), own in points.items() if panel == "partition #C=2"} == {
        "fedavg": [Published(1, pytest.approx(0.79), value_std=pytest.approx(0.047))],  # the runs end in round 1
        "fedconcat": [Published(204, pytest.approx(0.844), value_std=pytest.approx(0.006))],
    }


def test_a_figure_with_a_sweep_of_its_own(folders):
    for seed, alpha in ((0, 0.1), (1, 0.1), (0, 1.0)):
        config = job_config(["experiment=fedumf/figure_alpha", "scale=smoke", f"strategy.server.alpha={alpha}"])
        folders.write(seed, rows(0.1, 0.8), strategy="fedumf", config=config)
    figure = load_figure("fedumf/figure_alpha")
    panels = of_experiment(figure, "smoke", folders.found.runs)
    assert {name: [run.seed for run in line] for name, line in panels[""].items()} == {
        "alpha=0.1": [0, 1],
        "alpha=1.0": [0],
    }
    assert grouped(figure, []) == {}
    elsewhere = replace(figure, where={"strategy": ("fedavg",)})
    assert of_experiment(elsewhere, "smoke", folders.found.runs) == {}
    copied = job_config(["experiment=fedumf/figure_alpha", "scale=smoke", "strategy.server.alpha=0.1"])
    copied["output_dir"] = "elsewhere"
    folders.write(0, rows(0.1, 0.9), strategy="fedumf", config=copied)
    panels = of_experiment(figure, "smoke", folders.found.runs)
    assert [run.seed for run in panels[""]["alpha=0.1"]] == [0, 1]  # a seed counts once
    repeated = job_config(
        ["experiment=fedumf/figure_alpha", "scale=smoke", "strategy.server.alpha=0.1", "local.lr=0.003"]
    )
    folders.write(2, rows(0.1, 0.8), strategy="fedumf", config=repeated)
    with pytest.raises(
        InputError, match=r"the line alpha=0\.1 has runs of several settings, such as local\.lr=.* and "
    ):
        of_experiment(figure, "smoke", folders.found.runs)


@pytest.mark.parametrize(("seeds", "named"), [((0,), "seeds 0"), ((0, 1), "seeds 0, 1 (some lines fewer)")])
def test_a_caption_says_that_lines_have_different_seeds(folders, tmp_path, monkeypatch, seeds, named):
    for seed, alpha in ((0, 1.0), *((seed, 0.1) for seed in seeds)):
        config = job_config(["experiment=fedumf/figure_alpha", "scale=smoke", f"strategy.server.alpha={alpha}"])
        folders.write(seed, rows(0.1, 0.8), strategy="fedumf", config=config)
    titles = []
    monkeypatch.setattr(figure_module, "plot_panels", lambda _, __, ___, title: titles.append(title))
    draw_figure("fedumf/figure_alpha", "smoke", folders.found.runs, tmp_path / "figure.png")
    assert titles[0].endswith(f"; {named}")


def test_a_figure_that_does_not_exist():
    with pytest.raises(InputError, match=r"^figure turbosvm/figure99: no such figure; allowed: fedavg/figure2, "):
        load_figure("turbosvm/figure99")
