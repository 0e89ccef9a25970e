"""pFedMe and APFL: worked numbers, and networks against naive rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.participation.base import select
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.vectors import MODEL

from ..helpers.naive_averaging import NaiveClients
from ..helpers.naive_personal import NaiveAPFL, NaivePFedMe
from ..helpers.quadratic_clients import FEDAVG, SGD, UNIFORM, Quadratics, info_of, start
from ..helpers.small_networks import COHORT, assert_equal_after, batch_norm, data_of, final_model, mlp, network_of
from ..helpers.strategies import client

# --- worked numbers, of clients with losses (y - b)^2 / 2 -------------------------------------------------------------

WORKED = {"strength": 2.0, "personal_lr": 0.1, "personal_steps": 3}
DAMPED = option("strategy/server", "fedavgm", momentum=0.0, lr=2.0)


@pytest.mark.parametrize(
    ("settings", "server", "expected"),
    [
        ({}, UNIFORM, 1.09770028),
        ({}, DAMPED, 1.19540056),
        ({"personal_decay": 0.001}, UNIFORM, 1.0975850335),
        ({"inner_start": "local"}, UNIFORM, 1.08568156),
    ],
)
def test_pfedme(settings, server, expected):
    federation = Quadratics(client("pfedme", **WORKED, **settings), server, ((1, 0), (1, 4)), (1, 1), lr=0.1, steps=2)
    assert federation.round(start(server, 1.0)).model.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("evaluate", "expected"), [("personal", (0.6866986, 1.9399042)), ("local", (0.90229972, 1.29310084))]
)
def test_pfedmes_own_models(evaluate, expected):
    pfedme = client("pfedme", **WORKED, evaluate=evaluate)
    federation = Quadratics(pfedme, UNIFORM, ((1, 0), (1, 4)), (1, 1), lr=0.1, steps=2)
    federation.round(start(UNIFORM, 1.0))
    own = [
        pfedme.own_model({MODEL: torch.zeros(1)}, federation.states[number], info_of((1, 1), number, 2, 0.1)).item()
        for number in range(2)
    ]
    assert own == pytest.approx(expected, abs=1e-6)


def apfl_step(**settings: object):
    """One step of a client with the loss (y - 4)^2 / 2 from w = 1, v = 2, and its state after the round."""
    apfl = client("apfl", share=0.25, **settings)
    info = replace(info_of((1,), 0, 1, 0.1), is_new=torch.tensor([False]))
    received, state = {MODEL: torch.tensor([1.0])}, {"own": torch.tensor([2.0]), "share": torch.tensor([0.25])}
    constants, w = apfl.constants(received, state, info), torch.tensor([1.0])
    w = w - 0.1 * apfl.direction(lambda at, batch, **_: at - 4, w, constants)
    stepped = constants["own"].item()
    uploads, state = apfl.finish(w, received, state, constants, info)
    return apfl, uploads[MODEL].item(), stepped, state


def test_apfl():
    apfl, w, v, state = apfl_step(adaptive=False)
    assert (w, v) == pytest.approx((1.3, 2.06875))
    assert apfl.own_model({MODEL: torch.tensor([1.3])}, state, info_of((1,), 0, 1, 0.1)).item() == pytest.approx(
        1.4921875
    )
    assert apfl_step(adaptive=True)[3]["share"].item() == pytest.approx(0.525)


def test_apfl_of_fedreps_code():
    assert apfl_step(adaptive=False, variant="fedrep")[2] == pytest.approx(2.08125)


def test_apfl_of_pfllib():
    apfl, w, v, state = apfl_step(adaptive=False, variant="pfllib")
    assert (w, v, state["own"].item()) == pytest.approx((1.3, 2.2, 1.525))
    assert apfl.own_model({MODEL: torch.tensor([9.0])}, state, info_of((1,), 0, 1, 0.1)).item() == pytest.approx(1.525)
    # 0.25 - 0.1 ((2.2 - 1.3) (0.25 * -2 + 0.75 * -3) + 0.02 * 0.25)
    assert apfl_step(adaptive=True, variant="pfllib")[3]["share"].item() == pytest.approx(0.497)


# --- networks against naive rounds ------------------------------------------------------------------------------------

PFEDME = {"strength": 3.0, "personal_steps": 3, "personal_lr": 0.1}
NAIVE_PFEDME = {"strength": 3.0, "steps": 3, "rate": 0.1}
CASES = {
    "pfedme": (client("pfedme", **PFEDME), FEDAVG, NaivePFedMe, NAIVE_PFEDME),
    "pfedme of the code": (
        client("pfedme", **PFEDME, personal_decay=0.1, evaluate="local", inner_start="local"),
        FEDAVG,
        NaivePFedMe,
        {**NAIVE_PFEDME, "decay": 0.1, "personal": False, "warm": False},
    ),
    **{
        f"apfl {variant}{' adaptive' if adaptive else ''}": (
            client("apfl", share=0.6, adaptive=adaptive, variant=variant),
            UNIFORM,
            NaiveAPFL,
            {"share": 0.6, "adaptive": adaptive, "variant": variant, "uniform": True},
        )
        for variant in ("paper", "fedrep", "pfllib")
        for adaptive in (False, True)
    },
}


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize("case", CASES)
def test_networks(make_experiment, default_experiment, case, executor):
    client_strategy, server, kind, settings = CASES[case]
    experiment = make_experiment(
        network=mlp,
        local={"epochs": 2},
        strategy=Strategy(client=client_strategy, server=server),
        clients_per_round=COHORT,
        population=replace(default_experiment.population, test_share=0.4),
        hardware={"executor": executor},
    )
    simulation = Simulation(experiment)
    naive = kind(network_of(simulation, mlp), data_of(simulation), NaiveClients(epochs=2), 0, **settings)
    state = assert_equal_after(simulation, naive, 4)
    layout = simulation.network.layout
    info = replace(info_of((1,), 0, 1, 0.1), layout=layout)
    for number, vectors in state.client_states.held.items():
        own = layout.views(client_strategy.own_model({MODEL: state.server.model}, vectors, info))
        for name, tensor in naive.tested(number).state_dict().items():
            torch.testing.assert_close(own[name], tensor, rtol=1e-4, atol=1e-5)
    losses = []
    for number in range(len(naive.data)):
        own = simulation.federation.client_test[number]
        logits = naive.tested(number)(simulation.dataset.inputs[own].float() / 255)
        losses.append(torch.nn.functional.cross_entropy(logits, simulation.dataset.targets[own], reduction="none"))
    assert simulation.test(state)["test/loss"] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-4)
    trained = [client for index in range(4) for client in select(0, index, len(naive.data), COHORT).tolist()]
    samples = 2 * sum(len(naive.data[client][1]) for client in trained)
    assert state.totals.client_samples == client_strategy.passes[0] * samples


@pytest.mark.parametrize("network", [mlp, batch_norm])
@pytest.mark.parametrize("variant", ["paper", "fedrep", "pfllib"])
def test_apfls_global_model_is_fedavgs(make_experiment, network, variant):
    """Also BatchNorm's running statistics."""
    pairs = [Strategy(client=each, server=FEDAVG) for each in (client("apfl", variant=variant), SGD)]
    models = [
        final_model(make_experiment(network=network, strategy=pair, clients_per_round=COHORT), 3) for pair in pairs
    ]
    torch.testing.assert_close(*models, rtol=1e-5, atol=1e-6)


def test_pfedme_without_pull_leaves_the_global_model(make_experiment):
    """Then θ is a client's own plain SGD, from the broadcast model on, and w does not move."""
    pair = Strategy(client=client("pfedme", strength=0.0), server=FEDAVG)
    simulation = Simulation(make_experiment(network=mlp, strategy=pair, clients_per_round=COHORT))
    state = simulation.initial()
    before = state.server.model.clone()
    state, _ = simulation.advance(state)
    torch.testing.assert_close(state.server.model, before)
    assert all((vectors["personal"] - before).norm() > 1e-2 for vectors in state.client_states.held.values())
