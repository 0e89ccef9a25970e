"""Per-FedAvg: worked numbers and networks against a naive server."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..helpers.naive_local_training import NaivePerFedAvg
from ..helpers.quadratic_clients import UNIFORM
from ..helpers.small_networks import NETWORKS, assert_as_naive, mlp


def client(difference: float | None, alpha: float = 0.1):
    if difference is None:
        return option("strategy/client", "perfedavg", alpha=alpha)
    return option("strategy/client", "perfedavg_hf", alpha=alpha, difference=difference)


@pytest.mark.parametrize(("difference", "expected"), [(None, 0.55), (1e-3, 0.595)])
def test_one_step_on_a_parabola(difference, expected):
    """f = w^2 / 2, w = 1, α = 0.1, β = 0.5; β's step starts at w, not at the adapted model."""
    w = torch.tensor([1.0], dtype=torch.float64)
    direction = client(difference).direction(lambda at, which: at.clone(), w, {})
    assert (w - 0.5 * direction).item() == pytest.approx(expected, abs=1e-9)


def test_which_batch_is_for_what():
    """f = a/2 w^2 with a = 1, 2, 3 for the three batches: v = 2 * 0.9, Hv = 3 v."""
    w = torch.tensor([1.0], dtype=torch.float64)
    gradient = lambda at, which: (which + 1.0) * at  # noqa: E731
    assert client(None).direction(gradient, w, {}).item() == pytest.approx(1.8)
    assert client(1e-3).direction(gradient, w, {}).item() == pytest.approx(1.8 * (1 - 0.1 * 3))


LOCAL = {
    "epochs": {"epochs": 2, "lr_decay": 0.5},  # odd numbers of batches: another epoch begins
    "steps": {"epochs": None, "steps": 3, "momentum": 0.5, "weight_decay": 0.05},
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("local", LOCAL.values(), ids=LOCAL)
@pytest.mark.parametrize("difference", [None, 0.1], ids=["fo", "hf"])
def test_networks(make_experiment, network, local, difference):
    strategy = Strategy(client=client(difference, 0.3), server=UNIFORM)
    naive = partial(NaivePerFedAvg, alpha=0.3, difference=difference)
    assert_as_naive(make_experiment, network, naive, local=local, strategy=strategy)


@pytest.mark.parametrize(("difference", "samples"), [(None, 3 * 2 * 2), (0.1, 3 * 2 * 4)])
def test_every_gradient_counts(make_experiment, difference, samples):
    """Two clients of two samples, two steps of two batches of one; Hessian-free: the third batch counts twice."""
    strategy = Strategy(client=client(difference), server=UNIFORM)
    local = {"epochs": None, "steps": 3, "batch_size": 1}
    for executor in ("in_process", "vectorized"):
        experiment = make_experiment(
            sizes=(2, 2),
            network=mlp,
            local=local,
            strategy=strategy,
            clients_per_round=2,
            hardware={"executor": executor},
        )
        simulation = Simulation(experiment)
        assert simulation.advance(simulation.initial())[0].totals.client_samples == samples


def test_a_single_batch_is_refused():
    with pytest.raises(InputError, match="local.batch_size=null: Per-FedAvg needs independent batches"):
        build_experiment(compose(["strategy=perfedavg", "local.batch_size=null"]).config)


def test_the_option_means_plainly():
    assert build_experiment(compose(["strategy=perfedavg"]).config).strategy.server == UNIFORM
