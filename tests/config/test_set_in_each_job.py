"""Values of a command line that Hydra must set in each job of a sweep, because they lie below swept options."""

from __future__ import annotations

import pytest

from fedrun.config.overrides import set_in_each_job

TWO = "strategy=fedprox,moon"


@pytest.mark.parametrize(
    ("argument", "changed"),
    [
        ("strategy.client.mu=1", "strategy.client.mu=1,1"),
        ("strategy.client.mu=null", "strategy.client.mu=null,null"),
        ("strategy.client.mu=", "strategy.client.mu='',''"),
        ("strategy.client.x=[1,2]", "strategy.client.x=[1,2],[1,2]"),
        ("strategy.client.mu=1,2", None),
        ("strategy.client.mu=range(3)", None),
        ("strategy/client=moon", None),
        ("~strategy.client.mu", None),
        ("+strategy.client.mu=1", None),
        ("rounds=1", None),
        ("strategy_of_mine=1", None),
    ],
)
def test_values_below_swept_options(argument: str, changed: str | None) -> None:
    assert set_in_each_job([TWO, argument]) == [TWO, changed or argument]


def test_other_sweeps_stay_as_they_are() -> None:
    for arguments in (
        ["strategy=moon", "strategy.client.mu=1"],
        ["seed=0,1", "strategy.client.mu=1"],
        ["model=mlp,logistic", "strategy.client.mu=1"],
        ["hydra/sweeper=optuna", TWO, "strategy.client.mu=1"],
    ):
        assert set_in_each_job(arguments) == arguments
    parts = ["strategy/client=fedprox,moon", "strategy.client.mu=1", "strategy.server.lr=1"]
    assert set_in_each_job(parts) == [parts[0], "strategy.client.mu=1,1", parts[2]]
