"""The papers' tables: every cell has a job of its experiment's sweep or is out of reach, and no job is idle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedrun.config.composed import compose
from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import SCALES
from fedrun.experiment.experiment import build_experiment
from fedrun.report.papers.cell_jobs import cell_configs
from fedrun.report.papers.described_tables import described, load_table, tables
from fedrun.report.papers.job_values import compatible, composed_job, has, meets, override_values
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.readings import RoundOf, RoundsTo, SpeedUp, ValueAt
from fedrun.report.papers.table_reading import OutOfReach, TableReading, UnknownParameter
from fedrun.system.errors import InputError

from ...helpers.job_configs import job_config

CHOOSING = ("dataset", "hparams", "model")
"""Keys of jobs whose options are likely to bring other values along."""


@pytest.mark.parametrize("name", tables())
def test_a_table_knows_every_cell(name):
    reading = load_table(name)
    table = reading.cells()
    assert table
    for cell in table:
        read = reading.reading(cell)
        if isinstance(read, ValueAt):
            assert read.key(cell)
        if reading.reason(cell) is None:
            reading.conditions(cell, "full")  # raises where a coordinate has no meaning
            if isinstance(read, SpeedUp):
                assert len(reading.reference(cell, read, table)) == 2
    places = {key for cell in table for key in cell.coordinates}
    assert {*reading.columns, *reading.blocks} <= places
    for entry in (*reading.out_of_reach, *reading.unknown_parameters):
        assert any(entry.holds(cell.coordinates) for cell in table)


@pytest.mark.parametrize("name", tables())
@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_is_made_by_one_job_and_every_job_makes_a_cell(name, scale):
    """What a cell's coordinates mean is what one job of the sweep sets, or what all its jobs have anyway."""
    reading = load_table(name)
    jobs = {
        tuple(override for override in job if not override.startswith("seed="))
        for job in experiment_sweep(name).jobs(scale)
    }
    values = {job: override_values(job) for job in jobs}
    busy, checked = set(), set()
    for cell in reading.cells():
        if reading.reason(cell):
            continue
        required = override_values(reading.conditions(cell, scale))
        makers = [job for job in jobs if compatible(values[job], required)]
        if len(makers) > 1:  # they differ in what they do not set themselves
            makers = [job for job in makers if meets(composed_job(job), required)]
        assert len(makers) == 1 or (not makers and scale != "full"), (cell, makers)
        for job in makers:
            busy.add(job)
            unset = frozenset((key, str(value)) for key, value in required.items() if key not in values[job])
            choice = tuple(values[job].get(key) for key in CHOOSING)
            if (unset, choice) not in checked:
                checked.add((unset, choice))
                assert meets(composed_job(job), required), (cell, job)
                build_experiment(composed_job(job))
    assert busy == jobs


@pytest.mark.parametrize("name", tables())
@pytest.mark.parametrize("scale", SCALES)
def test_what_a_table_reads_is_there_where_runs_are_evaluated_adaptively(name, scale):
    """Rounds to the runs' own targets; other metrics of the test samples where an evaluation is full."""
    reading, first = load_table(name), {}
    table = reading.cells()
    for position, cell in enumerate(table):
        if not isinstance(reading.reading(cell), SpeedUp):  # only the dataset brings another way of evaluating along
            first.setdefault((cell.dataset, cell.metric), position)
    for position, config in cell_configs(name, scale, first.values()).items():
        cell, evaluation = table[position], config["evaluation"]
        read = reading.reading(cell)
        if not evaluation["adaptive"]:
            continue
        if isinstance(read, RoundsTo):
            target = {"femnist": 0.7, "celeba": 0.7, "shakespeare": 0.5}.get(cell.dataset, read.target)
            assert target in config["targets"] and not read.interpolated
        elif read.key(cell).startswith("test/") and (round := read.at(cell)) not in (None, config["rounds"]):
            assert round > config["rounds"] or round % evaluation["full_every"] == 0


def test_cells_of_values_without_a_stand_in_are_left_out_where_the_substituted_model_lacks_their_key():
    """At scale smoke an MLP of 4, 16 or 64 units stands in for the CNN; 256 and 1024 mean a key that it lacks."""
    table = load_table("turbosvm/table4").cells()
    made = {
        (table[position].coordinates["C"], table[position].coordinates["embedding_dim"])
        for position in cell_configs("turbosvm/table4", "smoke")
    }
    assert made == {(clients, width) for clients in ("8", "64") for width in ("4", "16", "64")}


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ("turbosvm/table2", "turbosvm/table3"),
        ("turbosvm/table9", "turbosvm/table10"),
        ("fedumf/tableA1", "fedumf/tableA2"),
        ("maxfl/table3", "maxfl/table5"),
        ("fedconcat/table1", "fedconcat/table5"),
    ],
)
def test_tables_that_are_read_off_the_same_runs(made, read):
    first, second = experiment_sweep(made), experiment_sweep(read)
    assert first.runs == second.runs == made
    for name in ("fedavg", "turbosvm", "fedprox", "maxfl"):
        jobs = [[job for job in sweep.jobs("small") if f"strategy={name}" in job] for sweep in (first, second)]
        if all(jobs):
            hashes = {build_experiment(compose(of_table[0])).record.folder for of_table in jobs}
            assert len(hashes) == 1, name


@pytest.mark.parametrize(
    ("overrides", "side", "key", "value"),
    [
        # FedUmf's appendix: mu = 1e-4 for a penalty without the factor 1/2.
        (["experiment=fedumf/tableA1", "hparams=feddc_cifar100", "strategy=fedprox"], "client", "mu", 2e-4),
        # FedUmf: alpha is 1 in tables 1 to 3 and 0.5 in table 4.
        (["experiment=fedumf/table1", "strategy=fedumf"], "server", "alpha", 1.0),
        (["experiment=fedumf/table4", "strategy=fedumf"], "server", "alpha", 0.5),
        (["experiment=maxfl/table1", "hparams=maxfl_fmnist", "strategy=maxfl"], "client", "tuning_steps", 0),
        (["experiment=maxfl/table3", "hparams=maxfl_sent140", "strategy=maxfl"], "client", "tuning_steps", 5),
        (["experiment=fedconcat/table1", "strategy=moon", "scale=smoke"], "client", "mu", 0.1),
        (["experiment=fedconcat/table14", "strategy=fedconcat_ib"], "clustering", "formula", "softmax_bias"),
    ],
)
def test_what_an_experiment_has_for_one_strategy_only(overrides, side, key, value):
    assert job_config(overrides)["strategy"][side][key] == value


def small_table(**changes):
    fields = {
        "title": "t",
        "experiment": "fedavg/table1",
        "number": "T1",
        "coordinates": {"dataset": "dataset={}", "model": {"2nn": ("a=1", "b=2")}},
        "metrics": {"rounds_to_0.97": RoundsTo(target=0.97, interpolated=True)},
        "columns": (),
        "blocks": (),
        "out_of_reach": (OutOfReach(where={"model": ("cnn",), "dataset": ("mnist", "x")}, reason="too large"),),
        "stand_ins": {"smoke": {"dataset": {"mnist": ("dataset=digits",)}}},
        "notes": {},
    }
    return TableReading(**{**fields, **changes})


class Place:
    def __init__(self, **coordinates):
        self.coordinates = coordinates
        self.metric = coordinates.get("metric", "")


def test_conditions_of_a_cell():
    reading = small_table()
    cell = Place(dataset="mnist", model="2nn", metric="rounds_to_0.97")
    assert reading.conditions(cell, "full") == ("dataset=mnist", "a=1", "b=2")
    assert reading.conditions(cell, "smoke") == ("dataset=digits", "a=1", "b=2")
    assert reading.substitutes(cell, "smoke") == {"dataset": ("dataset=digits",)}
    assert reading.substitutes(cell, "full") == {}
    assert reading.conditions(Place(dataset="other", model="2nn"), "smoke") == ("dataset=other", "a=1", "b=2")
    assert reading.reason(Place(dataset="mnist", model="cnn")) == "too large"
    assert reading.reason(Place(dataset="y", model="cnn")) is None


def test_coordinates_that_mean_something_together():
    reading = small_table(
        coordinates={
            "dataset": "dataset={}",
            "kernel lr": {"poly2 1e-4": ("strategy.server={kernel:poly,degree:2,lr:0.0001}",), "rbf": ("k=rbf",)},
        },
        out_of_reach=(),
    )
    both = Place(lr="1e-4", dataset="mnist", kernel="poly2", metric="f1")
    assert reading.entries(both) == {"kernel lr": "poly2 1e-4", "dataset": "mnist"}
    assert reading.conditions(both, "full") == (
        "strategy.server={kernel:poly,degree:2,lr:0.0001}",
        "dataset=mnist",
    )
    assert reading.conditions(Place(dataset="mnist", kernel="rbf"), "full") == ("dataset=mnist", "k=rbf")
    with pytest.raises(InputError, match=r"\.coordinates\.kernel lr: rbf 1 is missing, which .*: poly2 1e-4, rbf$"):
        reading.conditions(Place(dataset="mnist", kernel="rbf", lr="1"), "full")


def test_rounds_of_some_cells():
    reading = ValueAt(metric="m", round=7, rounds=(RoundOf(where={"dataset": ("mnist",)}, round=5),))
    assert (reading.at(Place(dataset="mnist")), reading.at(Place(dataset="x"))) == (5, 7)


def test_what_a_job_has():
    composed = compose(["dataset=digits", "clients_per_round=1", "strategy.server={weighting:uniform}"])
    assert meets(composed, override_values(["dataset=digits", "strategy=fedavg", "local.steps=null", "targets=[0.9]"]))
    assert meets(composed, override_values(["clients_per_round=1", "strategy.server={weighting:uniform}"]))
    assert not meets(composed, override_values(["clients_per_round=1.0"]))  # all clients, not one
    assert not meets(composed, override_values(["strategy.server={weighting:samples}"]))
    assert not meets(composed, override_values(["dataset=mnist"]))
    assert not has(composed.config, "local.nothing", None)
    job = override_values(["dataset=digits", "clients_per_round=1", "seed=0"])
    assert compatible(job, {"dataset": "digits", "rounds": 7})
    assert not compatible(job, {"dataset": "mnist"})
    assert not compatible(job, {"clients_per_round": 1.0})


def test_what_the_paper_leaves_open_has_a_cell_for_each_value():
    reading = small_table(
        unknown_parameters=(UnknownParameter(where={"model": ("cnn",)}, coordinate="mu", values=("1", "2")),)
    )
    paper = [cell.coordinates for cell in small_table().cells()]
    ours = [cell.coordinates for cell in reading.cells()]
    assert ours == [
        {**cell, **open_}
        for cell in paper
        for open_ in ([{"mu": "1"}, {"mu": "2"}] if cell["model"] == "cnn" else [{}])
    ]
    assert 0 < len(ours) - len(paper) < len(paper)


def test_a_metric_that_depends_on_a_coordinate():
    reading = ValueAt(metric={"clients": {"seen": "clients/gm_appeal", "unseen": "unseen/gm_appeal"}}, round=None)
    cell = Cell("maxfl", "T1", "fmnist", {"clients": "unseen"}, "maxfl", "gm_appeal", "", None, "fraction")
    assert reading.key(cell) == "unseen/gm_appeal"
    with pytest.raises(InputError, match=r"^maxfl T1: its experiment does not say how gm_appeal is read everywhere$"):
        reading.key(replace(cell, setting={"clients": "all"}))


def test_what_a_table_does_not_say_is_refused():
    reading = small_table()
    table = r"/experiment/fedavg/table1.yaml: hydra.sweeper.table\."
    numbers = r" is missing, which \S*/experiment/fedavg.csv has; allowed: "
    with pytest.raises(InputError, match=f"{table}coordinates.model: mlp{numbers}2nn$"):
        reading.conditions(Place(dataset="mnist", model="mlp"), "full")
    with pytest.raises(InputError, match=f"{table}coordinates: E{numbers}dataset, model$"):
        reading.conditions(Place(dataset="mnist", E="1"), "full")
    with pytest.raises(InputError, match=f"{table}metrics: f1{numbers}rounds_to_0.97$"):
        reading.reading(Place(metric="f1"))
    with pytest.raises(InputError, match=r"^table turbosvm/table99: no such table; allowed: fedavg/table1, "):
        load_table("turbosvm/table99")


def test_a_damaged_description_is_refused_in_one_line():
    table = {**experiment_sweep("turbosvm/table2").sweeper.table, "experiment": "turbosvm/table2"}
    assert described(table, TableReading, "here") == load_table("turbosvm/table2")
    for target, bound in ((-1, "greater than 0"), (70, "less than or equal to 1")):
        metrics = {"rounds_to_0.70": {"target": target, "interpolated": False}}
        with pytest.raises(InputError, match=rf"^here\.metrics\.rounds_to_0\.70\.target: Input should be {bound}$"):
            described({**table, "metrics": metrics}, TableReading, "here")
    with pytest.raises(InputError, match=r"^here.metrics.f1: allowed: {target: .., interpolated: ..}, {metric: .., ro"):
        described({**table, "metrics": {"f1": {"metirc": "test/f1", "round": None}}}, TableReading, "here")
    with pytest.raises(InputError, match=r"^here.colums: unknown key; allowed: title, number, coordinates, metrics, "):
        described({**table, "colums": []}, TableReading, "here")
    with pytest.raises(InputError, match=r"^here.coordinates: is missing$"):
        described({"experiment": "a/b", "title": "t", "metrics": {}}, TableReading, "here")


def test_a_scale_without_scales_is_refused():
    with pytest.raises(InputError, match=r"^scale=smoke: allowed: full, because this experiment has no scales$"):
        compose(["scale=smoke"])
    with pytest.raises(InputError, match=r"^scale=small: allowed: full, because this experiment has no scales$"):
        compose(["experiment=demo", "scale=small"])
    with pytest.raises(InputError, match=r"^scale=tiny: allowed: full, small, smoke$"):
        compose(["experiment=turbosvm/table2", "scale=tiny"])
    with pytest.raises(InputError, match=r"^experiment=no/table1: no such option; allowed: demo, "):
        experiment_sweep("no/table1")
    with pytest.raises(
        InputError, match=r"^experiment=turbosvm/tabel2: no such option; did you mean turbosvm/table2\? "
    ):
        experiment_sweep("turbosvm/tabel2")
