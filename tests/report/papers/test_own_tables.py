"""Tables and figures of a paper of one's own, in a folder of options of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrun.cli import report
from fedrun.cli.entrypoint import exit_status
from fedrun.config.options import with_config_dir
from fedrun.report.papers.cell_jobs import cell_configs
from fedrun.report.papers.described_tables import command_arguments, described, load_table, tables
from fedrun.report.papers.figure import draw_figure
from fedrun.report.papers.layout import is_number
from fedrun.report.papers.own_cells import coordinate
from fedrun.report.papers.paper import numbers_file
from fedrun.report.papers.paper_table import paper_table
from fedrun.report.papers.readings import SpeedUp
from fedrun.report.papers.results import results
from fedrun.report.papers.table_reading import TableReading
from fedrun.system.errors import InputError

from ...helpers.job_configs import job_config
from ...helpers.run_folders import Folders, rows

EXPERIMENT = """\
# @package _global_
name: mine/table1
rounds: 2
hydra:
  mode: MULTIRUN
  sweeper:
    params: {strategy: "fedavg,strong", local.lr: "0.1,0.2", seed: "0,1"}
    table:
      title: Mine, table 1
      number: T1
      coordinates:
        strategy: strategy={}
        lr: local.lr={}
        clients: {few: [partition.clients=5], default: []}
      metrics: {accuracy: {metric: test/accuracy, round: null}, loss: {metric: test/loss, round: null}}
      columns: [lr]
      blocks: [metric]
    figures:
      figure1:
        title: Figure
        where: {metric: [accuracy]}
        panels: [lr]
        lines: [strategy]
        metrics: [test/accuracy]
        against: rounds
        open: ""
"""
NUMBERS = """\
paper,table,dataset,setting,strategy,metric,value,std,unit
mine,T1,,lr=0.1,fedavg,accuracy,70.0,1.0,%
mine,T1,,lr=0.2,fedavg,accuracy,71.5,,%
mine,T1,,lr=0.1,strong,accuracy,75.0,,%
mine,T1,,lr=0.2,strong,accuracy,,,%
"""
STRONG = "defaults: [client: fedprox, server: fedavg]\nclient: {mu: 0.5}\n"
TABLE, CSV, STRATEGY = "experiment/mine/table1.yaml", "experiment/mine.csv", "strategy/strong.yaml"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder, in the working folder; its options count."""
    monkeypatch.chdir(tmp_path)
    for name, content in {TABLE: EXPERIMENT, CSV: NUMBERS, STRATEGY: STRONG}.items():
        path = tmp_path / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    with with_config_dir(tmp_path / "own"):
        yield tmp_path / "own"


def write(folders: Folders, strategy: str = "fedavg", lr: float = 0.1, final: float = 0.7) -> None:
    """The two seeds of a setting; their accuracies are 2 points apart, and their losses 1 minus them."""
    config = job_config(["experiment=mine/table1", f"strategy={strategy}", f"local.lr={lr}"])
    for seed in (0, 1):
        folders.write(seed, rows(0.1, 0.3, final + 0.02 * seed), strategy=strategy, config=config)


def test_the_papers_numbers_are_beside_the_folder_of_its_tables(own: Path) -> None:
    assert "mine/table1" in tables() and "turbosvm/table2" in tables()
    assert numbers_file("mine/table1") == own / CSV
    assert numbers_file("turbosvm/table2").parent != own / "experiment"
    assert command_arguments("mine/table1", "full") == "--config-dir own experiment=mine/table1"
    assert command_arguments("turbosvm/table2", "small") == "experiment=turbosvm/table2 scale=small"
    with with_config_dir(None):
        assert "mine/table1" not in tables()


def test_a_speed_up_needs_the_rounds_to_a_single_target(own: Path, folders: Folders) -> None:
    """With 60 % reached in round 2 of both rates, and 70 % only with one of them, their speed-ups would differ."""
    metrics = "{to_60: {target: 0.6, interpolated: false}, to_70: {target: 0.7, interpolated: false}"
    text = EXPERIMENT.replace("{accuracy: {metric: test/accuracy, round: null}", metrics)
    text = text.replace("loss: {metric: test/loss, round: null}", 'speed_up: {reference: {lr: "0.1"}}')
    (own / TABLE).write_text(text)
    header, *_ = NUMBERS.splitlines()
    cells = [f"mine,T1,,lr={lr},fedavg,{metric},2,,rounds" for lr in (0.1, 0.2) for metric in ("to_60", "to_70")]
    (own / CSV).write_text("\n".join([header, *cells, "mine,T1,,lr=0.2,fedavg,speed_up,1.0,,x", ""]))
    reading = load_table("mine/table1")
    table = reading.cells()
    with pytest.raises(InputError, match=r"mine/table1: to_60, to_70 at .*; a speed-up needs the rounds to one target"):
        reading.reference(table[-1], SpeedUp(reference={"lr": "0.1"}), table)
    single = [cell for cell in table if cell.metric != "to_70"]
    assert reading.reference(single[-1], SpeedUp(reference={"lr": "0.1"}), single) == (0, 1)


def test_a_sweep_that_makes_no_cell_is_named(own: Path, folders: Folders) -> None:
    """A list of YAML is one value, unlike the text of a command line."""
    (own / TABLE).write_text(EXPERIMENT.replace('local.lr: "0.1,0.2"', "local.lr: [0.1, 0.2]"))
    write(folders)
    with pytest.raises(InputError) as refused:
        paper_table("mine/table1", None, folders.found.runs)
    assert str(refused.value) == (
        "table mine/table1: no job of its sweep makes a cell; the first cell needs strategy=fedavg local.lr=0.1, the "
        "first job has strategy=fedavg local.lr=[0.1,0.2]; several values of a key are written without brackets, such "
        "as 0.1,1.0"
    )


def test_a_cell_without_a_job_is_left_out_and_not_out_of_reach(own: Path, folders: Folders) -> None:
    """The sweep has one of the two rates for the second strategy."""
    grids = "grids: [{strategy: fedavg, local.lr: '0.1,0.2'}, {strategy: strong, local.lr: 0.1}]"
    everywhere = 'params: {strategy: "fedavg,strong", local.lr: "0.1,0.2", seed: "0,1"}'
    (own / TABLE).write_text(EXPERIMENT.replace(everywhere, f'params: {{seed: "0,1"}}\n    {grids}'))
    for strategy, lr in (("fedavg", 0.1), ("fedavg", 0.2), ("strong", 0.1)):
        write(folders, strategy, lr)
    (table,) = paper_table("mine/table1", None, folders.found.runs).tables
    assert table.rows[1] == ("strong", "75.0", "71.0 ± 1.0", "-4.0", "-", "left out", "-")
    assert table.notes[0] == "Left out at scale full: 1 of 4 cells."


def test_runs_of_another_experiment_fill_cells_and_seeds_without_an_own_run(
    own: Path, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    """``mine/more`` has the second rate (of which this table has one seed) and the third, which is of no cell."""
    (own / TABLE).write_text(EXPERIMENT.replace("columns: [lr]", "columns: [lr]\n      further_runs: [mine/more]"))
    more = "# @package _global_\nname: mine/more\nrounds: 3\nhydra: {mode: MULTIRUN, sweeper: {params: {seed: 0}}}\n"
    (own / "experiment/mine/more.yaml").write_text(more)
    config = job_config(["experiment=mine/table1", "local.lr=0.2"])
    folders.write(0, rows(0.1, 0.3, 0.7), config=config)
    for lr in (0.2, 0.3):
        config = job_config(["experiment=mine/table1", "name=mine/more", "rounds=3", f"local.lr={lr}"])
        for seed in (0, 1):
            folders.write(seed, rows(0.1, 0.3, 0.8), config=config)
    (table,) = paper_table("mine/table1", None, folders.found.runs).tables
    assert table.rows[0] == ("fedavg", "71.5", "75.0 ± 5.0", "+3.5")
    assert table.above[1:] == (
        "Also read: 1 run of mine/more.",
        "Different from the experiment: rounds=3 where the experiment has 2 (1 run).",
    )
    top = str(folders.top / "runs")
    assert run(top, "--config-dir", "own", "--table", "mine/table1") == 0
    assert "75.0 ± 5.0" in capsys.readouterr().out
    assert run(top, "--config-dir", "own", "--figure", "mine/figure1", "--to", "figure.png") == 0


def test_runs_of_another_experiment_alone_need_no_scale(own: Path, folders: Folders) -> None:
    """Neither the table nor the figure does."""
    (own / TABLE).write_text(EXPERIMENT.replace("columns: [lr]", "columns: [lr]\n      further_runs: [mine/more]"))
    (own / "experiment/mine/more.yaml").write_text("# @package _global_\nname: mine/more\nhydra: {mode: MULTIRUN}\n")
    config = job_config(["experiment=mine/table1", "local.lr=0.2", "name=mine/more"])
    folders.write(0, rows(0.1, 0.3, 0.8), config=config)
    found = folders.found.runs
    (table,) = paper_table("mine/table1", None, found).tables
    assert table.rows[0] == ("fedavg", "71.5", "80.0", "+8.5")
    assert draw_figure("mine/figure1", None, found, own / "figure.png") == ""


def test_further_runs_never_replace_those_of_the_tables_own_sweep(own: Path, folders: Folders) -> None:
    """The own run has more rounds than its job, the further ones have the job's rounds and other data."""
    (own / TABLE).write_text(EXPERIMENT.replace("columns: [lr]", "columns: [lr]\n      further_runs: [mine/more]"))
    more = "# @package _global_\nname: mine/more\nhydra: {mode: MULTIRUN, sweeper: {params: {seed: 0}}}\n"
    (own / "experiment/mine/more.yaml").write_text(more)
    arguments = ["experiment=mine/table1", "local.lr=0.2"]
    folders.write(0, rows(0.1, 0.3, 0.4, 0.7), config=job_config([*arguments, "rounds=3"]))
    for seed in (0, 1):
        config = job_config([*arguments, "name=mine/more"])
        folders.write(seed, rows(0.1, 0.3, 0.8), config=config, data="other")
    (table,) = paper_table("mine/table1", None, folders.found.runs).tables
    assert table.rows[0] == ("fedavg", "71.5", "70.0", "-1.5")
    assert table.above[1:] == ("Different from the experiment: rounds=3 where the experiment has 2 (1 run).",)


def test_a_paper_may_write_a_number_without_a_point(own: Path, folders: Folders) -> None:
    """0.7 and 0.72 with the rate 1.0, which the paper calls 1, are 71.0 ± 1.0 percent."""
    (own / TABLE).write_text(EXPERIMENT.replace("0.1,0.2", "0.1,1.0"))
    (own / CSV).write_text(NUMBERS.replace("lr=0.2", "lr=1"))
    write(folders, lr=1.0)
    (table,) = paper_table("mine/table1", None, folders.found.runs).tables
    assert table.rows[0] == ("fedavg", "71.5", "71.0 ± 1.0", "-0.5")


def test_what_one_block_does_not_show_is_in_its_heading(own: Path, folders: Folders) -> None:
    """The paper has losses with the rate 0.1 only."""
    (own / CSV).write_text(NUMBERS + "mine,T1,,lr=0.1,fedavg,loss,0.3,,\nmine,T1,,lr=0.1,strong,loss,0.3,,\n")
    for lr in (0.1, 0.2):
        write(folders, lr=lr)
    accuracies, losses = paper_table("mine/table1", None, folders.found.runs).tables
    assert accuracies.title == losses.title == "Mine, table 1"
    assert (accuracies.part, losses.part) == ("metric accuracy", "metric loss, lr 0.1")
    assert losses.header == ("strategy", "paper", "ours", "difference")


def test_a_misspelt_metric_beside_another_is_noted(own: Path, folders: Folders) -> None:
    (own / TABLE).write_text(EXPERIMENT.replace("loss: {metric: test/loss", "loss: {metric: test/lost"))
    (own / CSV).write_text(NUMBERS + "mine,T1,,lr=0.1,fedavg,loss,0.3,,\n")
    write(folders)
    *_, losses = paper_table("mine/table1", None, folders.found.runs).tables
    assert losses.notes[0] == "No run has test/lost, from which loss is read."


def test_a_row_without_a_run_has_the_papers_numbers(own: Path, folders: Folders) -> None:
    """0.7 and 0.72 are 71.0 ± 1.0 percent; the paper has 70.0."""
    write(folders)
    write(folders, lr=0.2, final=0.6)
    (table,) = paper_table("mine/table1", None, folders.found.runs).tables
    parts = ("paper", "ours", "difference")
    assert table.header == ("strategy", *(f"lr={lr}: {part}" for lr in ("0.1", "0.2") for part in parts))
    assert table.rows == (
        ("fedavg", "70.0 ± 1.0", "71.0 ± 1.0", "+1.0", "71.5", "61.0 ± 1.0", "-10.5"),
        ("strong", "75.0", "not run", "-", "-", "not run", "-"),
    )
    assert table.notes[0] == "Not run yet: 2 of 4 cells."
    assert table.above[0].startswith("Scale: full (fedrun --config-dir own experiment=mine/table1). ")
    overview, *_ = results(folders.found.runs)
    assert [row[0] for row in overview.rows] == ["mine/table1"]


def test_without_the_papers_numbers_a_table_has_ours(own: Path, folders: Folders) -> None:
    """A loss is no percentage. 0.7 and 0.72 are losses of 0.3 and 0.28."""
    (own / CSV).unlink()
    write(folders)
    write(folders, strategy="strong", lr=0.2, final=0.8)
    cells = load_table("mine/table1").cells()
    assert [(cell.strategy, cell.setting, cell.metric, cell.unit) for cell in cells[:3]] == [
        ("fedavg", {"lr": "0.1", "clients": "default"}, "accuracy", "%"),
        ("fedavg", {"lr": "0.1", "clients": "default"}, "loss", "number"),
        ("fedavg", {"lr": "0.2", "clients": "default"}, "accuracy", "%"),
    ]
    assert len(cells) == 8  # two strategies, two rates, two metrics
    accuracy, loss = paper_table("mine/table1", "full", folders.found.runs).tables
    assert accuracy.header == ("strategy", "lr=0.1: ours", "lr=0.2: ours")
    assert accuracy.rows == (("fedavg", "71.0 ± 1.0", "not run"), ("strong", "not run", "81.0 ± 1.0"))
    assert loss.rows == (("fedavg", "0.290 ± 0.010", "not run"), ("strong", "not run", "0.190 ± 0.010"))


def test_the_value_of_a_coordinate_may_have_spaces(own: Path) -> None:
    (own / CSV).unlink()
    text = (own / TABLE).read_text().replace("lr: local.lr={}", "notes: tracking.notes={}")
    text = text.replace('local.lr: "0.1,0.2"', 'tracking.notes: "first try,second"').replace("[lr]", "[notes]")
    (own / TABLE).write_text(text)
    assert {cell.setting["notes"] for cell in load_table("mine/table1").cells()} == {"first try", "second"}
    assert len(cell_configs("mine/table1", "full")) == 8  # two strategies, two notes and two metrics


def test_the_value_of_a_coordinate_with_the_most_conditions(own: Path) -> None:
    from fedrun.report.papers.job_values import composed_job

    job = composed_job(("partition.clients=10", "local.steps=null"))
    assert coordinate(job, {"default": (), "few": ("partition.clients=10",)}) == "few"
    assert coordinate(job, {"many": ("partition.clients=11",)}) is None
    assert [coordinate(job, f"{key}={{}}") for key in ("local.steps", "dataset", "no.key")] == ["null", "digits", None]


@pytest.mark.parametrize(
    ("value", "bare"),
    [("0.1", True), ("1e-4", True), ("10%", True), ("inf", True), ("null", True), ("#C=2", False), ("iid", False)],
)
def test_values_that_are_printed_with_their_coordinate(value: str, bare: bool) -> None:
    assert is_number(value) == bare


def run(*arguments: str) -> int:
    return exit_status(report.run, "fedrun-report", arguments)


def test_the_command(
    own: Path, folders: Folders, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(own.parent))
    write(folders)
    top = str(folders.top / "runs")
    with with_config_dir(None):
        assert run(top, "--config-dir=~/own", "--table", "mine/table1") == 0
        out = capsys.readouterr().out
        assert out.startswith("## Mine, table 1\n\nScale: full ")
        assert "\n\n### metric accuracy, lr 0.1\n\n| strategy | " in out
        assert "| fedavg   | 70.0 ± 1.0 | 71.0 ± 1.0 |       +1.0 |" in out
        assert run(top, "--config-dir", "own", "--figure", "mine/figure1", "--to", "figure.png") == 0
        assert Path("figure.png").read_bytes().startswith(b"\x89PNG")
        assert run(top, "--config-dir", "own", "--results", "--to", "results.md") == 0
        assert "| mine/table1 | full " in Path("results.md").read_text()
        capsys.readouterr()
        assert run(top, "--table", "mine/table1") == 2
        assert capsys.readouterr().err.startswith("fedrun-report: table mine/table1: no such table; allowed: fedavg/")


WRONG = [
    (TABLE, "number: T1", "number: T2", "{own}/experiment/mine.csv: table 'T2': no such table; allowed: T1"),
    (TABLE, "number: T1", "numbr: T1", "{table}.numbr: unknown key; allowed: title, number, coordinates, metrics, "),
    (TABLE, "      title: Mine, table 1\n", "", "{table}.title: is missing"),
    (
        TABLE,
        "columns: [lr]",
        "columns: [rate]",
        "{table}.columns: rate is not a coordinate of the table's cells; allowed: dataset, ",
    ),
    (
        CSV,
        "lr=0.1,fedavg",
        "lr=0.1,FedAvg (ours)",
        "{table}.coordinates: strategy=FedAvg (ours): cannot be read; allowed: ",
    ),
    (TABLE, "columns: [lr]", "columns: ['${nothing}']", "Interpolation key 'nothing' not found full_key: hydra."),
    (
        TABLE,
        "columns: [lr]",
        "further_runs: [mine/more]",
        "{table}.further_runs: experiment=mine/more: no such option; allowed: ",
    ),
    (
        TABLE,
        "columns: [lr]",
        "further_runs: [mine/table1]",
        "{table}.further_runs: mine/table1 is the table's own; allowed: other experiments",
    ),
    (
        TABLE,
        "columns: [lr]",
        "out_of_reach: [{where: {rate: ['1']}, reason: none}]",
        "{table}.out_of_reach: rate is not a coordinate",
    ),
    (
        TABLE,
        "lr: local.lr={}",
        "rate: local.lr={}",
        "{table}.coordinates: lr is missing, which {own}/experiment/mine.csv has; ",
    ),
    (
        TABLE,
        "lr: local.lr={}",
        "lr: local.rate={}",
        "{table}.coordinates: local.rate is not a key of the sweep's jobs; allowed: ",
    ),
    (TABLE, "lr: local.lr={}", "lr: local.lr", "{table}.coordinates.lr: local.lr; allowed: KEY={{}}, or a list of "),
    (TABLE, "lr: local.lr={}", "lr: {'0.1': ['local.lr=[']}", "{table}.coordinates.lr.0.1: local.lr=["),
    (TABLE, "lr: local.lr={}", "lr: {'0.1': ['local.lr=0.1']}", "{table}.coordinates.lr: 0.2 is missing, which "),
    (
        TABLE,
        "metrics: {accuracy",
        "metrics: {acc",
        "{table}.metrics: accuracy is missing, which {own}/experiment/mine.csv has; ",
    ),
    (
        TABLE,
        "{metric: test/accuracy, round: null}",
        "{metric: test/acc, round: null}",
        "{table}.metrics.accuracy: test/acc: no ",
    ),
    (
        TABLE,
        "{metric: test/accuracy, round: null}",
        "{metirc: test/acc, round: null}",
        "{table}.metrics.accuracy: allowed: {{t",
    ),
    (
        TABLE,
        'seed: "0,1"',
        'seed: "0,1", local.momentum: "0.0,0.5"',
        "experiment=mine/table1: several jobs produce the cell ",
    ),
    (TABLE, "name: mine/table1", "name: [mine", "{own}/experiment/mine/table1.yaml: is not YAML ("),
    (
        CSV,
        "setting",
        "where",
        "{own}/experiment/mine.csv, line 1: columns paper, table, dataset, where, strategy, metric, ",
    ),
    (
        CSV,
        "lr=0.2,strong",
        "rate=0.2,strong",
        "{table}.coordinates: rate is missing, which {own}/experiment/mine.csv has; ",
    ),
    (
        CSV,
        "strong,accuracy,,",
        "strong,acuracy,,",
        "{table}.metrics: acuracy is missing, which {own}/experiment/mine.csv has; ",
    ),
]


@pytest.mark.parametrize(("file", "old", "new", "message"), WRONG)
def test_a_mistake_is_one_line(
    own: Path, folders: Folders, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, message: str
) -> None:
    write_elsewhere(own, folders)
    text = (own / file).read_text()
    assert text.count(old) == 1
    (own / file).write_text(text.replace(old, new))
    assert run(str(folders.top / "runs"), "--config-dir", str(own), "--table", "mine/table1") == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    table = f"{own}/experiment/mine/table1.yaml: hydra.sweeper.table"
    assert err.startswith(f"fedrun-report: {message.format(own=own, table=table)}")


def write_elsewhere(own: Path, folders: Folders) -> None:
    """The runs of the table as it is in a copy of the folder, because a process reads an experiment once."""
    copy = own.parent / "copy"
    own.rename(copy)
    with with_config_dir(copy):
        write(folders)
    for path in copy.rglob("*.*"):
        place = own / path.relative_to(copy)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "lines: [strategy]",
            "lines: [method]",
            "{figure}.lines: method is not a coordinate of the table's cells; allowed: ",
        ),
        (
            "where: {metric: [accuracy]}",
            "where: {metric: [acc]}",
            "{figure}.where.metric: acc is not a value of the table's cells; allowed: accuracy",
        ),
        ("metrics: [test/accuracy]", "metrics: [test/acc]", "figure mine/figure1: test/acc: no run has this metric; "),
        ("metrics: [test/accuracy]", "metrics: []", "{figure}.metrics: Tuple should have at least 1 item "),
        ("against: rounds", "against: hours", "{figure}.against: Input should be 'rounds', "),
    ],
)
def test_a_mistake_in_a_figure_is_one_line(
    own: Path, folders: Folders, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    write(folders)
    (own / TABLE).write_text((own / TABLE).read_text().replace(old, new))
    assert run(str(folders.top / "runs"), "--config-dir", "own", "--figure", "mine/figure1", "--to", "f.png") == 2
    figure = f"{own}/experiment/mine/table1.yaml: hydra.sweeper.figures.figure1"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fedrun-report: {message.format(figure=figure)}")


NO_FIGURE = "figure mine/figure1: no such figure; allowed: "


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hydra:\n", NO_FIGURE),
        ("hydra: {sweeper: null}\n", NO_FIGURE),
        ("hydra: {sweeper: {figures: [a]}}\n", NO_FIGURE),
        (
            "hydra: {sweeper: {figures: {figure1: 5}}}\n",
            "{file}: hydra.sweeper.figures.figure1: 5 is not a mapping; allowed: keys such as title and where",
        ),
    ],
)
def test_an_experiment_that_describes_no_figure(
    own: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    (own / TABLE).write_text(content)
    assert run("--config-dir", "own", "--figure", "mine/figure1", "--to", "f.png") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fedrun-report: {message.format(file=own / TABLE)}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--config-dir", "nowhere", "--table", "mine/table1"],
            "--config-dir nowhere: no such folder; allowed: one with opt",
        ),
        (
            ["--config-dir", "", "--table", "mine/table1"],
            "--config-dir='': is empty; allowed: a path; --config-dir=. is the current folder",
        ),
        (
            ["--config-dir", "own", "--config-dir", "own", "--results"],
            "--config-dir: is given twice; allowed: one folder",
        ),
        (["--config-dir", "own", "--table", "mine/table2"], "table mine/table2: no such table; allowed: "),
        (["--config-dir", "own", "--figure", "mine/figure2"], "figure mine/figure2: no such figure; allowed: "),
        (
            ["--config-dir", "own", "--table", "mine/table1"],
            "table mine/table1: no finished runs; start them with: fedrun --co",
        ),
    ],
)
def test_arguments_that_cannot_be_used(
    own: Path, folders: Folders, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    folders.write(0, rows(0.1, 0.2))
    assert run(str(folders.top / "runs"), *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fedrun-report: {message}")


def test_what_may_be_left_out_of_a_description() -> None:
    content = {"experiment": "a/b", "title": "t", "coordinates": {}, "metrics": {}}
    reading = described(content, TableReading, "here")
    assert (reading.number, reading.columns, reading.notes) == ("", (), {})
