"""FedAvg, FedProx, SCAFFOLD and FedAdam: worked numbers on quadratic clients, then networks against a naive server."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.server import ServerState
from fedrun.strategies.vectors import MODEL

from ..helpers.naive_averaging import NaiveClients, NaiveFedAdam, NaiveFedAvg, NaiveScaffold
from ..helpers.quadratic_clients import (
    FEDAVG,
    ONE,
    SCAFFOLD,
    SGD,
    UNIFORM,
    Quadratics,
    info_of,
    round_of,
    senders_of,
    start,
    update_of,
)
from ..helpers.small_networks import (
    COHORT,
    NETWORKS,
    assert_as_naive,
    assert_equal_after,
    batch_norm,
    data_of,
    final_model,
    mlp,
    network_of,
)

# --- worked numbers: clients whose loss is f(y; a, b) = a/2 (y - b)^2, on a model of one number ---------------------


@pytest.mark.parametrize(("server", "expected"), [(FEDAVG, 2.0), (UNIFORM, 1.5)])
def test_one_step_of_fedavg_is_fedsgd(server, expected):
    # gradients (1, -3), ends (0.5, 2.5); n = (1, 3)
    federation = Quadratics(SGD, server, ((1, 0), (1, 4)), (1, 3), lr=0.5, steps=1)
    state = start(server, 1.0)
    assert [y.item() for y, _ in federation.ends(state)] == [0.5, 2.5]
    assert federation.round(state).model.item() == expected


def test_fedavg_weighs_by_samples():
    mean = {MODEL: torch.tensor([0.375])}  # ends (0, 0.5), n = (1, 3)
    state, senders = start(FEDAVG, 1.0), senders_of((1, 3))
    assert FEDAVG.weights(state, senders).tolist() == [1, 3]
    assert UNIFORM.weights(state, senders).tolist() == [1, 1]
    assert FEDAVG.aggregate(start(FEDAVG, 1.0), update_of(mean, (1, 3)), round_of(0, 2))[0].model.item() == 0.375


def test_fedproxs_gradient_has_the_factor_one_half():
    fedprox = option("strategy/client", "fedprox", mu=0.5)
    received = {MODEL: torch.tensor([1.0])}
    y = torch.tensor([2.0])
    gradient = 1.0 * (y - 4.0)
    fedprox.linear_correction(fedprox.constants(received, {}, info_of((1,), 0, 1, 0.1))).add_to(gradient, y)
    assert (y - 0.1 * gradient).item() == pytest.approx(2.15, abs=1e-6)  # without the 1/2 in the loss it would be 2.10


def test_fedprox_spares_the_buffers():
    fedprox = option("strategy/client", "fedprox", mu=0.5)
    info = replace(info_of((1,), 0, 1, 0.1), layout=replace(ONE, trainable=3, size=5))
    assert fedprox.constants({MODEL: torch.arange(5.0)}, {}, info)["anchor"].tolist() == [0, 1, 2]


def test_scaffold_after_two_rounds():
    federation = Quadratics(SCAFFOLD.client, SCAFFOLD.server, ((1, 0), (0.5, 4)), (1, 9), lr=0.5, steps=2)
    state = federation.round(start(SCAFFOLD.server, 1.0))
    assert federation.states[0]["control"].item() == 0.75
    assert federation.states[1]["control"].item() == -1.3125
    assert state.slots["control"].item() == -0.28125
    assert state.model.item() == 1.28125
    assert [y.item() for y, _ in replace(federation).ends(state)] == [1.09375, 1.568359375]


def test_scaffolds_second_round():
    federation = Quadratics(SCAFFOLD.client, SCAFFOLD.server, ((1, 0), (0.5, 4)), (1, 9), lr=0.5, steps=2)
    state = federation.round(federation.round(start(SCAFFOLD.server, 1.0)), 1)
    assert federation.states[0]["control"].item() == 1.21875
    assert federation.states[1]["control"].item() == -1.318359375
    assert state.slots["control"].item() == pytest.approx(-0.0498046875, abs=1e-7)
    assert state.model.item() == pytest.approx(1.3310546875, abs=1e-7)


def test_scaffolds_control_moves_by_the_share_of_all_clients():
    """c ← c + (1/N) Σ: two of eight clients took part; their mean change is 4, so c moves by 1."""
    server = option("strategy/server", "scaffold", lr=0.5)
    state = ServerState(torch.tensor([1.0]), {"control": torch.tensor([10.0])})
    update = update_of({MODEL: torch.tensor([3.0]), "control": torch.tensor([4.0])}, (1, 3))
    state, _ = server.aggregate(state, update, round_of(0, 8))
    assert state.slots["control"].item() == 11.0
    assert state.model.item() == 2.0  # half the way from 1 to 3


REDDI = {"variant": "reddi", "lr": 0.1, "beta2": 0.99, "eps": 1e-3}


@pytest.mark.parametrize(
    ("settings", "second_delta", "expected"),
    [
        (REDDI, -0.1, (0.901587077, 0.798060765)),
        ({"variant": "torch", "lr": 0.1}, -0.1, (0.9000000016, 0.8220741646)),
    ],
)
def test_fedadam_in_two_rounds(settings, second_delta, expected):
    server = option("strategy/server", "fedadam", **settings)
    state = start(server, 1.0)
    # ends (0, 0.5), n = (1, 3): mean 0.375, Δ = -0.625
    state, _ = server.aggregate(state, update_of({MODEL: torch.tensor([0.375])}, (1, 3)), round_of(0, 2))
    assert state.model.item() == pytest.approx(expected[0], abs=2e-7)
    if settings is REDDI:
        assert state.slots["fedadam/v"].item() == pytest.approx(0.00390724, abs=1e-8)
        assert state.slots["fedadam/m"].item() == pytest.approx(-0.0625, abs=1e-8)
    state, _ = server.aggregate(state, update_of({MODEL: state.model + second_delta}, (1, 3)), round_of(1, 2))
    assert state.model.item() == pytest.approx(expected[1], abs=2e-7)


# --- networks, against the naive server ------------------------------------------------------------------------------


LOCAL = {
    "plain": {},
    "several epochs": {"epochs": 3},
    "momentum and weight decay": {"momentum": 0.9, "weight_decay": 0.01, "epochs": 2},
    "clipping and weight decay": {"max_gradient_norm": 0.3, "weight_decay": 0.1},
    "one batch of all samples": {"batch_size": None, "epochs": 3},
    "steps within an epoch": {"epochs": None, "steps": 2},
    "steps over several epochs": {"epochs": None, "steps": 7, "momentum": 0.5},
    "falling rate": {"lr": 0.3, "lr_decay": 0.5},
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("local", LOCAL.values(), ids=LOCAL)
def test_fedavg(make_experiment, network, local):
    assert_as_naive(make_experiment, network, NaiveFedAvg, local=local, seed=1)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("local", [{"epochs": 2}, {"epochs": 2, "momentum": 0.9, "max_gradient_norm": 0.5}])
def test_fedprox(make_experiment, network, local):
    strategy = Strategy(client=option("strategy/client", "fedprox", mu=0.7), server=FEDAVG)
    clients = NaiveClients(**local, mu=0.7)
    assert_as_naive(make_experiment, network, NaiveFedAvg, local=local, clients=clients, strategy=strategy)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    ("local", "lr"),
    [
        ({"epochs": 2}, 1.0),
        ({"epochs": None, "steps": 5, "lr_decay": 0.5}, 0.5),
        ({"weight_decay": 0.1, "momentum": 0.8}, 1.0),
    ],
)
def test_scaffold(make_experiment, network, local, lr):
    strategy = Strategy(client=SCAFFOLD.client, server=option("strategy/server", "scaffold", lr=lr))
    naive = partial(NaiveScaffold, lr=lr)
    assert_as_naive(make_experiment, network, naive, local=local, strategy=strategy, rounds=4)


@pytest.mark.parametrize("buffers", ["average", "frozen"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("variant", ["torch", "reddi"])
def test_fedadam(make_experiment, network, variant, buffers):
    settings = {"lr": 0.05, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3}
    server = option("strategy/server", "fedadam", variant=variant, buffers=buffers, **settings)
    strategy = Strategy(client=SGD, server=server)
    naive = partial(NaiveFedAdam, reddi=variant == "reddi", frozen=buffers == "frozen", **settings)
    assert_as_naive(make_experiment, network, naive, strategy=strategy)


def test_frozen_buffers_keep_their_initial_values(make_experiment):
    server = option("strategy/server", "fedadam", buffers="frozen")
    model = final_model(make_experiment(network=batch_norm, strategy=Strategy(client=SGD, server=server)), 2)
    assert model[-6:].tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_fedadam_leaves_parameters_alone_that_no_client_moved(make_experiment, weighting):
    """The pixel at (3, 0) is black in every image, so its weights have no gradient and must stay bit for bit.

    Adam divides by the size of what it is given: the rounding error of a mean of equal numbers would become a step.
    """
    server = option("strategy/server", "fedadam", weighting=weighting, lr=0.1)
    experiment = make_experiment(network=mlp, strategy=Strategy(client=SGD, server=server), clients_per_round=6)
    initial = Simulation(experiment).initial().server.model[:96].view(6, 16)
    weight = final_model(experiment, 3)[:96].view(6, 16)
    assert torch.equal(weight[:, 12], initial[:, 12])
    assert not torch.isclose(weight[:, 0], initial[:, 0]).all()


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(client=option("strategy/client", "fedprox", mu=0.3), server=FEDAVG),
        Strategy(client=option("strategy/client", "feddyn", alpha=0.3), server=option("strategy/server", "feddyn")),
    ],
    ids=["fedprox", "feddyn"],
)
def test_clients_adam_leaves_parameters_alone_that_have_no_gradient(make_experiment, strategy, executor):
    """The weights of the black pixel stay where they are, at y = x with h = 0, so their correction is 0, too.

    That is μ y − μ x of FedProx, α_k y + α_k (h − x) of FedDyn.
    """
    experiment = make_experiment(
        network=mlp,
        strategy=strategy,
        local={"optimizer": "adam", "lr": 0.01, "epochs": 2},
        hardware={"executor": executor},
        clients_per_round=COHORT,
    )
    initial = Simulation(experiment).initial().server.model[:96].view(6, 16)
    weight = final_model(experiment, 3)[:96].view(6, 16)
    assert torch.equal(weight[:, 12], initial[:, 12])
    assert not torch.isclose(weight[:, 0], initial[:, 0]).all()


def test_fedprox_without_pull_is_fedavg(make_experiment):
    prox = Strategy(client=option("strategy/client", "fedprox", mu=0.0), server=FEDAVG)
    experiment = make_experiment(network=mlp, local={"epochs": 2, "momentum": 0.9})
    assert torch.equal(final_model(replace(experiment, strategy=prox), 3), final_model(experiment, 3))


def test_scaffolds_first_round_is_fedavgs_plain_mean(make_experiment):
    uniform = make_experiment(network=batch_norm, strategy=Strategy(client=SGD, server=UNIFORM))
    scaffold = replace(uniform, strategy=SCAFFOLD)
    torch.testing.assert_close(final_model(scaffold, 1), final_model(uniform, 1), rtol=1e-6, atol=1e-7)
    assert not torch.allclose(final_model(scaffold, 2), final_model(uniform, 2), atol=1e-4)


def frozen(spec):
    """A network whose first layer is not trained."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU())
    encoder[1].requires_grad_(False)
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(5, spec.classes)))


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize("local", [{}, {"momentum": 0.9, "weight_decay": 0.1}])
def test_frozen_parameters_stay(make_experiment, local, executor):
    simulation = Simulation(
        make_experiment(network=frozen, local=local, clients_per_round=COHORT, hardware={"executor": executor})
    )
    before = simulation.network.frozen["encoder.1.weight"].clone()
    naive = NaiveFedAvg(network_of(simulation, frozen), data_of(simulation), NaiveClients(**local), 0)
    assert_equal_after(simulation, naive)
    assert simulation.network.layout.trainable == 6 * 5 + 5 + 5 * 3 + 3
    assert torch.equal(simulation.network.frozen["encoder.1.weight"], before)
