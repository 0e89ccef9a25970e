"""Suites: every strategy of every scale can be built."""

from __future__ import annotations

import pytest
import torch

from fedrun.config.composed import compose
from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import SCALES
from fedrun.config.options import options
from fedrun.experiment.experiment import build_experiment
from fedrun.strategies.server import ServerState

from ..helpers.quadratic_clients import senders_of

SUITES = [name for name in options("experiment") if name.startswith("suite/")]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SUITES)
def test_every_strategy_can_be_built(name: str, scale: str) -> None:
    jobs = {}
    for job in experiment_sweep(name).jobs(scale):
        jobs.setdefault(tuple(override for override in job if override.startswith(("strategy=", "hparams="))), job)
    assert len(jobs) > 1
    for job in jobs.values():
        build_experiment(compose(job))


def test_fedwmsams_table_takes_plain_means() -> None:
    """The paper's code averages clients plainly; those of the pathological splits have unequal sizes."""
    for job in experiment_sweep("suite/table_fedwmsam").jobs("full"):
        server = build_experiment(compose(job)).strategy.server
        weights = server.weights(ServerState(torch.zeros(1)), senders_of((1, 3)))
        assert weights.tolist() == [1.0, 1.0], job
