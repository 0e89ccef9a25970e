"""Which jobs a sweep over several grids has, at its scales."""

from __future__ import annotations

from typing import Any

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf

from fedrun.config import grids
from fedrun.config.grids import named
from fedrun.config.sweeper import GRIDS as TARGET
from fedrun.config.sweeper import NO_GRIDS, SweeperSettings, sweeper_settings
from fedrun.system.errors import InputError

SEEDS = {"seed": "0,1"}
GRIDS = ({"strategy": "a,b", "mu": "[1,2]"}, {"strategy": "c"})


def settings(**keys: Any) -> SweeperSettings:
    return SweeperSettings.of({"_target_": TARGET, **NO_GRIDS, **keys})


def jobs(params: Any, several: Any, arguments: list[str], scale: str = "full", scales: Any = None) -> list[list[str]]:
    return grids.jobs(
        settings(params=params, grids=list(several), scales=scales or {}), "x/table1", scale, arguments, None
    )


def test_all_combinations_of_one_grid():
    assert jobs({"x": "1,2"}, [{}], ["y=3", "seed=0,1"]) == [
        ["x=1", "y=3", "seed=0"],
        ["x=1", "y=3", "seed=1"],
        ["x=2", "y=3", "seed=0"],
        ["x=2", "y=3", "seed=1"],
    ]


def test_grids_one_after_the_other():
    assert jobs(SEEDS, GRIDS, []) == [
        ["seed=0", "strategy=a", "mu=[1,2]"],
        ["seed=0", "strategy=b", "mu=[1,2]"],
        ["seed=1", "strategy=a", "mu=[1,2]"],
        ["seed=1", "strategy=b", "mu=[1,2]"],
        ["seed=0", "strategy=c"],
        ["seed=1", "strategy=c"],
    ]


def test_each_grid_takes_what_it_lists_of_what_was_asked_for():
    assert jobs(SEEDS, GRIDS, ["strategy=b,c", "seed=1"]) == [
        ["seed=1", "strategy=b", "mu=[1,2]"],
        ["seed=1", "strategy=c"],
    ]
    assert jobs(SEEDS, GRIDS, ["strategy=c", "seed=0"]) == [["seed=0", "strategy=c"]]


def test_a_value_that_no_grid_lists_goes_into_all_and_each_job_is_made_once():
    assert jobs({}, [{"strategy": "a", "mu": 1}, {"strategy": "b"}, {"strategy": "c"}], ["strategy=d"]) == [
        ["strategy=d", "mu=1"],
        ["strategy=d"],
    ]
    assert jobs(SEEDS, GRIDS, ["seed=1,5", "strategy=c"]) == [["seed=1", "strategy=c"], ["seed=5", "strategy=c"]]


@pytest.mark.parametrize(
    ("argument", "strategies"),
    [
        ("lr=0.1", "a"),
        ("lr=1e-1", "a"),
        ("lr=.1", "a"),
        ("lr=1", "b"),
        ("lr='1.0'", "ab"),  # a text is no number
        ("sizes=[1, 2]", "a"),
        ("exact=true", "b"),
        ("clients_per_round=1", "a"),  # one client
        ("clients_per_round=1.0", "b"),  # all clients
    ],
)
def test_values_are_those_of_a_grid_however_they_are_written(argument: str, strategies: str) -> None:
    several = [
        {"strategy": "a", "lr": "0.1", "sizes": [1, 2], "exact": False, "clients_per_round": 1},
        {"strategy": "b", "lr": "1.0,2.0", "sizes": [3], "exact": True, "clients_per_round": 1.0},
    ]
    made = {override for job in jobs({}, several, [argument]) for override in job if override.startswith("strategy=")}
    assert made == {f"strategy={strategy}" for strategy in strategies}


def test_what_is_removed_stays_so():
    assert jobs({}, [{}], ["~hparams", "seed=0,1"]) == [["~hparams", "seed=0"], ["~hparams", "seed=1"]]


def test_a_reference_among_several_values_is_written_as_it_was_typed():
    assert jobs({}, [{}], ["x=${rounds},1"]) == [["x=${rounds}"], ["x=1"]]
    assert jobs({}, [{}], ["x=[${rounds}_2,a],{b:${c.d}}"]) == [["x=[${rounds}_2,a]"], ["x={b:${c.d}}"]]


def test_values_of_a_grid_are_written_as_on_the_command_line() -> None:
    mapping = {"width": 3, "sizes": [1, {"bias": None}], "name": "wide"}
    assert jobs({"x": mapping, "y": True, "z": ["", 0.1]}, [{}], []) == [
        ["x={width:3,sizes:[1,{bias:null}],name:wide}", "y=true", "z=['',0.1]"]
    ]


def test_an_interval_is_no_grid():
    with pytest.raises(HydraException, match=r"^x: a sweep over an interval needs a sweeper that searches$"):
        jobs({}, [{}], ["x=interval(0,1)"])


SCALES = {
    "full": {"params": {"dataset": "m,n"}},
    "small": {
        "params": {"dataset": "m", "rounds": 5, "seed": 0},
        "grids": [{"strategy": "a"}, {"strategy": "c", "rounds": 9}],
    },
    "smoke": {"params": {"strategy": "c", "targets": [0.7, 0.8], "steps": None}, "stages": [{"lr": "1,2"}]},
}


def test_a_scale_chooses_among_the_values_of_the_grids_as_a_command_line_would() -> None:
    assert jobs(SEEDS, GRIDS, [], "small", SCALES) == [
        ["seed=0", "strategy=a", "mu=[1,2]", "dataset=m", "rounds=5", "name=x/table1/small"],
        ["seed=0", "strategy=c", "dataset=m", "rounds=9", "name=x/table1/small"],
    ]
    assert jobs({}, GRIDS, [], "full", SCALES)[:2] == [
        ["strategy=a", "mu=[1,2]", "dataset=m"],
        ["strategy=a", "mu=[1,2]", "dataset=n"],
    ]
    assert jobs({}, GRIDS, [], "smoke", SCALES) == [
        ["strategy=c", "targets=[0.7,0.8]", "steps=null", "name=x/table1/smoke"]
    ]


def test_the_command_line_has_precedence_over_the_scale() -> None:
    assert jobs(SEEDS, GRIDS, ["rounds=2", "strategy=c", "seed=7", "scale=small"], "small", SCALES) == [
        ["seed=7", "strategy=c", "dataset=m", "rounds=2", "name=x/table1/small", "scale=small"]
    ]


def test_scales_that_an_experiment_does_not_have() -> None:
    with pytest.raises(InputError, match=r"^scale=tiny: allowed: full, small, smoke$"):
        jobs({}, GRIDS, [], "tiny", SCALES)
    with pytest.raises(InputError, match=r"^scale=small: allowed: full, because this experiment has no scales$"):
        jobs({}, GRIDS, [], "small")
    assert jobs({"x": 1}, [{}], []) == [["x=1"]]


def test_the_stages_of_a_search_may_be_those_of_a_scale() -> None:
    sweeper = settings(stages=[{"lr": "1,2,3"}], scales=SCALES)
    assert (sweeper.at("small").stages, sweeper.at("smoke").stages) == (({"lr": "1,2,3"},), ({"lr": "1,2"},))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("params", None, "params=null: allowed: a mapping"),
        ("grids", 3, "grids=3: allowed: a list, each item a mapping"),
        ("stages", None, "stages=null: allowed: a list, each item a mapping"),
        ("stages", ["local.lr"], "stages=[local.lr]: allowed: a list, each item a mapping"),
        ("metric", 5, "metric=5: allowed: a string"),
        ("scales", {"small": {"stages": 3}}, "scales.small.stages=3: allowed: a list, each item a mapping"),
        (
            "scales",
            {"small": {"param": {}}},
            "scales.small.param: unknown key; allowed below hydra.sweeper.scales.small: ",
        ),
        ("grid", [], "grid: unknown key; allowed below hydra.sweeper: params, grids, "),
    ],
)
def test_settings_that_are_not_allowed(key: str, value: object, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        settings(**{key: value}).at("small")
    assert str(refusal.value).startswith(f"hydra.sweeper.{message}")


def test_stages_of_the_command_line_replace_those_of_a_scale() -> None:
    given = ["hydra.sweeper.stages=[{lr:'3'}]"]
    sweeper = {"_target_": TARGET, **NO_GRIDS, "stages": [{"lr": "3"}], "scales": SCALES}
    hydra = {"sweeper": sweeper, "overrides": {"hydra": given}}
    assert sweeper_settings(OmegaConf.create(hydra)).at("smoke").stages == ({"lr": "3"},)
    hydra["overrides"]["hydra"] = []
    assert sweeper_settings(OmegaConf.create(hydra)).at("smoke").stages == ({"lr": "1,2"},)
    assert (named("x", "full"), named("x", "small")) == ("x", "x/small")


def test_a_plus_before_a_key_sets_the_same_key():
    assert jobs(SEEDS, GRIDS, ["++seed=1", "++strategy=c"]) == [["++seed=1", "++strategy=c"]]
    assert jobs({}, [{"lr": "1,2"}], ["+lr=3", "++lr=4,5"]) == [["++lr=4"], ["++lr=5"]]
    assert grids.unseeded(["lr=1", "++seed=0", "+seed=1"]) == ("lr=1",)
