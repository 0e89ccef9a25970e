"""Which jobs a sweep over several grids has."""

from __future__ import annotations

import pytest
from hydra.errors import HydraException

from fedrun.sweeps.grids import jobs

SEEDS = {"seed": "0,1"}
GRIDS = ({"strategy": "a,b", "mu": "[1,2]"}, {"strategy": "c"})


def test_all_combinations_of_one_grid():
    assert jobs({"x": "1,2"}, [{}], ["y=3", "seed=0,1"], None) == [
        ["x=1", "y=3", "seed=0"],
        ["x=1", "y=3", "seed=1"],
        ["x=2", "y=3", "seed=0"],
        ["x=2", "y=3", "seed=1"],
    ]


def test_grids_one_after_the_other():
    assert jobs(SEEDS, GRIDS, [], None) == [
        ["seed=0", "strategy=a", "mu=[1,2]"],
        ["seed=0", "strategy=b", "mu=[1,2]"],
        ["seed=1", "strategy=a", "mu=[1,2]"],
        ["seed=1", "strategy=b", "mu=[1,2]"],
        ["seed=0", "strategy=c"],
        ["seed=1", "strategy=c"],
    ]


def test_each_grid_takes_what_it_lists_of_what_was_asked_for():
    assert jobs(SEEDS, GRIDS, ["strategy=b,c", "seed=1"], None) == [
        ["seed=1", "strategy=b", "mu=[1,2]"],
        ["seed=1", "strategy=c"],
    ]
    assert jobs(SEEDS, GRIDS, ["strategy=c", "seed=0"], None) == [["seed=0", "strategy=c"]]


def test_a_value_that_no_grid_lists_goes_into_all_and_each_job_is_made_once():
    assert jobs({}, [{"strategy": "a", "mu": 1}, {"strategy": "b"}, {"strategy": "c"}], ["strategy=d"], None) == [
        ["strategy=d", "mu=1"],
        ["strategy=d"],
    ]
    assert jobs(SEEDS, GRIDS, ["seed=1,5", "strategy=c"], None) == [["seed=1", "strategy=c"], ["seed=5", "strategy=c"]]


def test_what_is_removed_stays_so():
    assert jobs({}, [{}], ["~recipe", "seed=0,1"], None) == [["~recipe", "seed=0"], ["~recipe", "seed=1"]]


def test_an_interval_is_no_grid():
    with pytest.raises(HydraException, match=r"^x: a sweep over an interval needs a sweeper that searches$"):
        jobs({}, [{}], ["x=interval(0,1)"], None)
