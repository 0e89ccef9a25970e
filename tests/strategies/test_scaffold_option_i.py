"""SCAFFOLD with option I (the new control variate is the gradient at the broadcast model), and as in FedDC's code."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..helpers.naive_local_training import NaiveScaffoldI
from ..helpers.quadratic_clients import SCAFFOLD, info_of
from ..helpers.small_networks import COHORT, NETWORKS, advanced, assert_as_naive, mlp

OPTION_I = replace(SCAFFOLD, client=option("strategy/client", "scaffold", option="I"))


def test_the_new_control_variate():
    """∇F = 3 at x; c_k was 0.5, c is 2: c_k becomes 3, and 2.5 is sent, whatever the move was."""
    info = replace(info_of((1,), 0, 2, 0.5), initial_gradient=torch.tensor([3.0]))
    received = {"model": torch.tensor([1.0]), "control": torch.tensor([2.0])}
    sent, kept = OPTION_I.client.finish(torch.tensor([9.0]), received, {"control": torch.tensor([0.5])}, {}, info)
    assert (sent["model"].item(), sent["control"].item(), kept["control"].item()) == (9.0, 2.5, 3.0)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("local", [{"epochs": 2, "lr_decay": 0.5}, {"epochs": None, "steps": 3, "weight_decay": 0.1}])
def test_networks(make_experiment, network, local):
    strategy = Strategy(client=OPTION_I.client, server=option("strategy/server", "scaffold", lr=0.7))
    naive = partial(NaiveScaffoldI, lr=0.7)
    assert_as_naive(make_experiment, network, naive, local=local, strategy=strategy, rounds=4)


def test_it_costs_one_more_pass(make_experiment):
    simulation = Simulation(make_experiment(network=mlp, strategy=OPTION_I, clients_per_round=6, local={"epochs": 2}))
    totals = simulation.advance(simulation.initial())[0].totals
    assert (totals.client_samples, totals.forward_samples) == (2 * 60 + 60, 0)


def test_the_variant_of_feddcs_code():
    """n = (1, 3), so ω = (1/2, 3/2). K̄ = 2, while the second client makes 3 steps; η_0 = 0.5, decayed to 0.25."""
    client = replace(SCAFFOLD.client, variant="feddc")
    info = replace(info_of((1, 3), 1, 3, 0.5, lr_decay=0.5), round=1, mean_steps=2)
    received = {"model": torch.tensor([1.0]), "control": torch.tensor([3.0])}
    state = {"control": torch.tensor([0.5])}
    constants = client.constants(received, state, info)
    assert constants["correction"].item() == 1.5  # c/ω − c_k = 2 − 0.5
    sent, kept = client.finish(torch.tensor([-4.0]), received, state, constants, info)
    # (x − y)/(K̄ η_0) − c = 5/1 − 3 = 2; 2 ω = 3 is sent
    assert (sent["model"].item(), sent["control"].item(), kept["control"].item()) == (-4.0, 3.0, 2.5)
    # Where 1.5 arrives of the 3 that were sent, the client's variate moves by 1.5/ω = 1.
    arrived = {**sent, "control": torch.tensor([1.5])}
    assert client.acknowledge(kept, sent, arrived, info)["control"].item() == 1.5
    paper, _ = SCAFFOLD.client.finish(torch.tensor([-4.0]), received, state, constants, info)
    assert paper["control"].item() == pytest.approx(5 / (3 * 0.25) - 3)


def test_the_variant_of_feddcs_code_with_momentum():
    """Two steps with momentum 1/2 move a model by 2.5 η along the same gradient: c_k⁺ − c_k = 5/(2.5 · 0.5) − 3 = 1."""
    client = replace(SCAFFOLD.client, variant="feddc")
    info = info_of((1,), 0, 2, 0.5, momentum=0.5)
    received = {"model": torch.tensor([1.0]), "control": torch.tensor([3.0])}
    sent, _ = client.finish(torch.tensor([-4.0]), received, {"control": torch.tensor([0.5])}, {}, info)
    assert sent["control"].item() == pytest.approx(1.0, abs=1e-6)


def test_the_variant_of_feddcs_code_with_equal_clients_is_the_papers(make_experiment):
    local = {"epochs": None, "steps": 3}
    experiment = make_experiment(sizes=(6,) * 6, network=mlp, local=local, clients_per_round=COHORT, strategy=SCAFFOLD)
    variant = replace(SCAFFOLD, client=replace(SCAFFOLD.client, variant="feddc"))
    states = []
    for strategy in (SCAFFOLD, variant):
        simulation = Simulation(replace(experiment, strategy=strategy))
        state = advanced(simulation, 3)
        states.append(state)
    assert torch.equal(states[0].server.model, states[1].server.model)


def test_option_i_has_no_variant():
    with pytest.raises(InputError, match=r"strategy\.client\.variant=feddc: .* allowed: option II"):
        replace(OPTION_I.client, variant="feddc").check(info_of((1,), 0, 2, 0.5).local)
