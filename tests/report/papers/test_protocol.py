"""The papers' tables: every experiment has one, and its sweep makes every cell that is not declared out of reach."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir

from fedrun.config.composed import compose
from fedrun.config.options import conf_dir, options
from fedrun.experiment.experiment import build_experiment
from fedrun.report.papers import protocol as protocols_module
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.protocol import (
    SCALES,
    Extra,
    Opened,
    OutOfReach,
    Protocol,
    RoundOf,
    RoundsTo,
    SpeedUp,
    ValueAt,
    load,
    protocols,
    reference,
)
from fedrun.sweeps.grids import jobs
from fedrun.system.errors import InputError

TABLES = [name for name in options("experiment") if re.fullmatch(r"\w+/table\w+", name)]


CHOOSING = {"dataset", "recipe", "model"}
"""Swept keys whose options are likely to bring other values along."""

Swept = frozenset[tuple[str, str]]


def swept(name: str, scale: str) -> set[Swept]:
    """The jobs of an experiment's sweep, seeds apart."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        whole = hydra_compose("config", [f"experiment={name}", f"scale={scale}"], return_hydra_config=True)
    made = jobs(whole.hydra.sweeper.params, whole.hydra.sweeper.grids, [], None)
    assert all(any(re.fullmatch(r"seed=\d+", override) for override in job) for job in made)
    return {frozenset(pair(override) for override in job if not override.startswith("seed=")) for job in made}


def pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, {"False": "false", "True": "true"}.get(value, value)  # as Hydra writes a sweep's values


def test_every_experiment_of_a_table_has_a_protocol_and_the_other_way_round():
    assert sorted(TABLES) == sorted(protocols())


@pytest.mark.parametrize("name", TABLES)
def test_a_protocol_knows_every_cell(name):
    protocol = load(name)
    table = protocol.cells()
    assert table
    for cell in table:
        reading = protocol.reading(cell)
        if isinstance(reading, ValueAt):
            assert reading.key(cell)
        protocol.overrides(cell, "full")  # raises where a coordinate has no meaning
        if isinstance(reading, SpeedUp) and protocol.reason(cell) is None:
            assert len(reference(cell, reading, table, protocol)) == 2
    places = {key for cell in table for key in cell.coordinates}
    assert {*protocol.columns, *protocol.blocks} <= places
    # Nothing is declared that no cell is about.
    assert set(protocol.metrics) == {cell.metric for cell in table}
    assert sorted(name for key in protocol.coordinates for name in key.split()) == sorted(places - {"metric"})
    rounds = [own for reading in protocol.metrics.values() if isinstance(reading, ValueAt) for own in reading.rounds]
    for entry in (*protocol.out_of_reach, *protocol.extras, *protocol.opened, *rounds):
        assert any(entry.holds(cell.coordinates) for cell in table)
    for stand_ins in protocol.stand_ins.values():
        for key, values in stand_ins.items():
            assert set(values) <= {protocol.entries(cell).get(key) for cell in table}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("scale", SCALES)
def test_the_sweep_makes_the_tables_cells_and_nothing_else(name, scale):
    """Every cell asks for what a job of the sweep sets, and whatever else it asks for the experiment sets anyway."""
    protocol, planned = load(name), swept(name, scale)
    keys = {key for job in planned for key, _ in job}
    made: set[Swept] = set()
    fixed: dict[tuple[Swept, tuple[str, str]], Swept] = {}
    for cell in protocol.cells():
        overrides = protocol.overrides(cell, scale)
        assert overrides is not None or scale != "full" or protocol.reason(cell)
        if overrides is not None:
            asked = frozenset(map(pair, overrides))
            job = frozenset((key, value) for key, value in asked if key in keys)
            made.add(job)
            for choice in [chosen for chosen in job if chosen[0] in CHOOSING] or [("", "")]:
                fixed.setdefault((asked - job, choice), job)
    assert made == planned
    for others, job in {(others, job) for (others, _), job in fixed.items()}:
        base = [f"experiment={name}", f"scale={scale}", *map("=".join, job)]
        experiment, other = (build_experiment(compose(keys)) for keys in (base, [*base, *map("=".join, others)]))
        assert experiment.record.hash == other.record.hash, others


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("scale", SCALES)
def test_what_a_table_reads_is_there_where_runs_are_evaluated_adaptively(name, scale):
    """Rounds to the runs' own targets; other metrics of the test samples where an evaluation is full."""
    protocol, composed = load(name), {}
    for cell in protocol.cells():
        overrides, reading = protocol.overrides(cell, scale), protocol.reading(cell)
        if overrides is None or isinstance(reading, SpeedUp):
            continue
        dataset = cell.coordinates.get("dataset")  # nothing else brings another way of evaluating along
        if dataset not in composed:
            composed[dataset] = compose([f"experiment={name}", f"scale={scale}", *overrides]).config
        config = composed[dataset]
        evaluation = config["evaluation"]
        if not evaluation["adaptive"]:
            continue
        if isinstance(reading, RoundsTo):
            own = {"femnist": 0.7, "celeba": 0.7, "shakespeare": 0.5}.get(dataset, reading.target)
            assert own in config["targets"] and not reading.interpolated
        elif reading.key(cell).startswith("test/") and (round := reading.at(cell)) not in (None, config["rounds"]):
            assert round > config["rounds"] or round % evaluation["full_every"] == 0


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("scale", SCALES)
def test_the_protocol_knows_the_runs_name(name, scale):
    assert load(name).run_name(scale) == compose([f"experiment={name}", f"scale={scale}"]).config["name"]


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ("turbosvm/table2", "turbosvm/table3"),
        ("turbosvm/table9", "turbosvm/table10"),
        ("fedumf/tableA1", "fedumf/tableA2"),
        ("maxfl/table3", "maxfl/table5"),
    ],
)
def test_tables_that_are_read_off_the_same_runs(made, read):
    assert load(made).runs == load(read).runs == made
    shared = swept(made, "small") & swept(read, "small")
    one_each = {dict(job)["strategy"]: job for job in shared}
    assert one_each
    for job in one_each.values():
        overrides = ["scale=small", *map("=".join, job)]
        composed = (compose([f"experiment={name}", *overrides]) for name in (made, read))
        hashes = {build_experiment(one).record.hash for one in composed}
        assert len(hashes) == 1, job


@pytest.mark.parametrize(
    ("overrides", "half", "key", "value"),
    [
        # FedUmf's appendix: mu = 1e-4 for a penalty without the factor 1/2.
        (["experiment=fedumf/tableA1", "recipe=feddc_cifar100", "strategy=fedprox"], "client", "mu", 2e-4),
        # FedUmf: alpha is 1 in tables 1 to 3 and 0.5 in table 4.
        (["experiment=fedumf/table1", "strategy=fedumf"], "server", "alpha", 1.0),
        (["experiment=fedumf/table4", "strategy=fedumf"], "server", "alpha", 0.5),
        (["experiment=maxfl/table1", "recipe=maxfl_fmnist", "strategy=maxfl"], "client", "tuning_steps", 0),
        (["experiment=maxfl/table3", "recipe=maxfl_sent140", "strategy=maxfl"], "client", "tuning_steps", 5),
    ],
)
def test_what_an_experiment_has_for_one_strategy_only(overrides, half, key, value):
    assert compose(overrides).config["strategy"][half][key] == value


OWN = sorted((conf_dir() / "recipe" / "experiment").glob("*/*-*.yaml"))


@pytest.mark.parametrize("path", OWN, ids=[f"{path.parent.name}-{path.stem}" for path in OWN])
def test_every_recipe_of_an_experiment_composes(path):
    table, _, strategy = path.stem.partition("-")
    experiment = f"{path.parent.name}/{table}"
    composed = compose([f"experiment={experiment}", f"strategy={strategy}"])
    assert composed.choices["recipe/experiment"].endswith(f"-{strategy}")
    build_experiment(composed.config)


def small_protocol(**changes):
    fields = {
        "title": "t",
        "paper": "fedavg",
        "table": "T1",
        "runs": "fedavg/table1",
        "coordinates": {"dataset": "dataset={}", "model": {"2nn": ("a=1", "b=2")}},
        "metrics": {"rounds_to_0.97": RoundsTo(target=0.97, interpolated=True)},
        "columns": (),
        "blocks": (),
        "out_of_reach": (OutOfReach(where={"model": ("cnn",), "dataset": ("mnist", "x")}, reason="too large"),),
        "stand_ins": {"smoke": {"dataset": {"mnist": ("dataset=digits",)}}},
        "notes": (),
    }
    return Protocol(**{**fields, **changes})


class Place:
    def __init__(self, **coordinates):
        self.coordinates = coordinates
        self.metric = coordinates.get("metric", "")


def test_overrides_of_a_cell():
    protocol = small_protocol()
    cell = Place(dataset="mnist", model="2nn", metric="rounds_to_0.97")
    assert protocol.overrides(cell, "full") == ("dataset=mnist", "a=1", "b=2")
    assert protocol.overrides(cell, "smoke") == ("dataset=digits", "a=1", "b=2")
    assert protocol.overrides(Place(dataset="other", model="2nn"), "smoke") is None
    out = Place(dataset="mnist", model="cnn")
    assert (protocol.reason(out), protocol.overrides(out, "full")) == ("too large", None)
    assert protocol.reason(Place(dataset="y", model="cnn")) is None


def test_coordinates_that_mean_something_together():
    protocol = small_protocol(
        coordinates={
            "dataset": "dataset={}",
            "kernel lr": {"poly2 1e-4": ("strategy.server={kernel:poly,degree:2,lr:0.0001}",), "rbf": ("k=rbf",)},
        },
        out_of_reach=(),
    )
    both = Place(lr="1e-4", dataset="mnist", kernel="poly2", metric="f1")
    assert protocol.entries(both) == {"kernel lr": "poly2 1e-4", "dataset": "mnist"}
    assert protocol.overrides(both, "full") == (
        "strategy.server={kernel:poly,degree:2,lr:0.0001}",
        "dataset=mnist",
    )
    assert protocol.overrides(Place(dataset="mnist", kernel="rbf"), "full") == ("dataset=mnist", "k=rbf")
    with pytest.raises(InputError, match=r"^fedavg T1: the protocol does not say what kernel lr=rbf 1 means$"):
        protocol.overrides(Place(dataset="mnist", kernel="rbf", lr="1"), "full")


def test_what_is_asked_for_besides_and_rounds_of_some_cells():
    protocol = small_protocol(
        extras=(Extra(where={"dataset": ("mnist",)}, overrides=("mu=1",), scales=("full",)),), out_of_reach=()
    )
    cell = Place(dataset="mnist", model="2nn", metric="rounds_to_0.97")
    assert protocol.overrides(cell, "full") == ("dataset=mnist", "a=1", "b=2", "mu=1")
    assert protocol.overrides(cell, "smoke") == ("dataset=digits", "a=1", "b=2")
    assert protocol.overrides(Place(dataset="x", model="2nn"), "full") == ("dataset=x", "a=1", "b=2")
    reading = ValueAt(metric="m", round=7, rounds=(RoundOf(where={"dataset": ("mnist",)}, round=5),))
    assert (reading.at(cell), reading.at(Place(dataset="x"))) == (5, 7)


def test_what_the_paper_leaves_open_has_a_cell_for_each_value():
    protocol = small_protocol(opened=(Opened(where={"model": ("cnn",)}, coordinate="mu", values=("1", "2")),))
    paper = [cell.coordinates for cell in small_protocol().cells()]
    ours = [cell.coordinates for cell in protocol.cells()]
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
    with pytest.raises(InputError, match=r"^maxfl T1: the protocol does not say how gm_appeal is read everywhere$"):
        reading.key(replace(cell, setting={"clients": "all"}))


def test_what_a_protocol_does_not_say_is_refused():
    protocol = small_protocol()
    with pytest.raises(InputError, match=r"^fedavg T1: the protocol does not say what model=mlp means$"):
        protocol.overrides(Place(dataset="mnist", model="mlp"), "full")
    with pytest.raises(InputError, match=r"^fedavg T1: the protocol does not say what E=1 means$"):
        protocol.overrides(Place(dataset="mnist", E="1"), "full")
    with pytest.raises(InputError, match=r"^fedavg T1: the protocol does not read f1$"):
        protocol.reading(Place(metric="f1"))
    with pytest.raises(InputError, match=r"^table turbosvm/table99: no such table; allowed: fedavg/table1, "):
        load("turbosvm/table99")


def test_a_damaged_protocol_is_refused_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / "table1.yaml"
    text = (protocols_module.FOLDER / "turbosvm" / "table2.yaml").read_text()
    path.write_text(text.replace("target: 0.70", "target: -1"))
    monkeypatch.setattr(protocols_module, "FOLDER", tmp_path)
    with pytest.raises(InputError) as refusal:
        load("mine/table1")
    assert str(refusal.value).startswith(f"{path}: metrics.rounds_to_0.70.")
    assert "\n" not in str(refusal.value)


def test_a_scale_without_scales_is_refused():
    with pytest.raises(InputError, match=r"^scale=smoke: is for experiments; allowed: scale=full$"):
        compose(["scale=smoke"])
    with pytest.raises(InputError, match=r"^scale=small: experiment=demo has no scales; allowed: scale=full$"):
        compose(["experiment=demo", "scale=small"])
    with pytest.raises(InputError, match=r"^scale=tiny: no such option; allowed: full, small, smoke$"):
        compose(["experiment=turbosvm/table2", "scale=tiny"])
    assert build_experiment(compose(["scale=full"])).record.hash == build_experiment(compose()).record.hash
