"""FedProto: worked numbers, and networks against naive rounds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.participation.base import select
from fedrun.experiment.strategy import Strategy
from fedrun.models.flat_network import Layout, Slot
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import Outputs
from fedrun.system.errors import InputError

from ..helpers.naive_averaging import NaiveClients
from ..helpers.naive_personal import NaiveFedProto
from ..helpers.quadratic_clients import info_of, round_of, update_of
from ..helpers.small_networks import COHORT, advanced, data_of, mlp, network_of

TWO = Layout(slots=(Slot("head.weight", (3, 2), 0, 6),), trainable=6, size=6, head=slice(0, 6), classes=3, embedding=2)
SERVER = option("strategy/server", "fedproto")


def client_strategy(**settings: object):
    return option("strategy/client", "fedproto", **settings)


def test_the_pull():
    """z = (1, 0), c = (0, 1): a mean square of 1 with the gradient strength (1, -1), and nothing where c is unknown."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    constants = {"prototypes": torch.tensor([0.0, 1.0, 7.0, 7.0, 0.0, 0.0]), "known": torch.tensor([1.0, 0.0, 0.0])}
    losses = client_strategy(strength=0.5).loss(Outputs(torch.zeros(2, 3), z), torch.tensor([0, 1]), constants)
    entropy = torch.tensor(3.0).log().item()
    assert losses.tolist() == pytest.approx([entropy + 0.5, entropy])
    losses.sum().backward()
    assert z.grad.tolist() == [pytest.approx([0.5, -0.5]), [0.0, 0.0]]


def known(embeddings, labels, model):
    return embeddings, labels


@pytest.mark.parametrize(("weighting", "expected"), [("clients", [0.5, 0.5]), ("samples", [0.25, 0.75])])
def test_mean_prototypes(weighting, expected):
    """Two clients hold class 0, by 1 and 3 samples; one holds class 1; nobody holds class 2, which has a prototype."""
    sent = []
    for means, counts in (([[1.0, 0.0], [2.0, 4.0], [0.0, 0.0]], [1.0, 5.0, 0.0]), ([[0.0, 1.0]] * 3, [3.0, 0.0, 0.0])):
        labels = torch.arange(3).repeat_interleave(torch.tensor(counts).long())
        info = replace(
            info_of((1,), 0, 1, 0.1),
            label_counts=torch.tensor(counts),
            training_embeddings=partial(known, torch.tensor(means)[labels], labels),
        )
        sent.append(client_strategy(weighting=weighting).finish(torch.zeros(6), {}, {}, {}, info)[0])
    mean = {name: (sent[0][name] + sent[1][name]) / 2 for name in sent[0]}
    state = SERVER.init(torch.zeros(6), TWO, 2)
    state.slots["prototypes"][4:] = torch.tensor([8.0, 9.0])
    state.slots["known"][2] = 1
    state, metrics = SERVER.aggregate(state, update_of(mean, (1, 1)), replace(round_of(0, 2), layout=TWO))
    assert state.slots["prototypes"].tolist() == pytest.approx([*expected, 2.0, 4.0, 8.0, 9.0])
    assert (state.slots["known"].tolist(), metrics) == ([1.0, 1.0, 1.0], {"prototypes": 3.0})


def test_clients_evaluated_by_the_nearest_prototype(make_experiment, default_experiment):
    """Against distances of their test embeddings to the prototypes; class 2 loses its own."""
    experiment = make_experiment(
        network=mlp,
        strategy=Strategy(client=client_strategy(evaluate="prototypes"), server=SERVER),
        clients_per_round=6,
        population=replace(default_experiment.population, test_share=0.4),
    )
    simulation = Simulation(experiment)
    state, layout = simulation.advance(simulation.initial())[0], simulation.network.layout
    state.server.slots["known"][2] = 0
    prototypes = state.server.slots["prototypes"].view(layout.classes, -1)
    known = [label for label in range(layout.classes) if state.server.slots["known"][label]]
    shares = []
    for client, own in enumerate(simulation.federation.client_test):
        network = network_of(simulation, mlp)
        network.load_state_dict(layout.views(state.client_states.held[client]["private"]))
        embeddings = network.requires_grad_(False).encoder(simulation.dataset.inputs[own].float() / 255)
        nearest = [min(known, key=lambda label: float((z - prototypes[label]).norm())) for z in embeddings]
        targets = simulation.dataset.targets[own].tolist()
        shares.append(sum(a == b for a, b in zip(nearest, targets, strict=True)) / len(targets))
    assert simulation.test(state)["clients/accuracy_mean"] == pytest.approx(sum(shares) / len(shares))


def test_logits_are_distances():
    """z = (0.5, 0.9): half of |z|² - |z - c_j|² is 0 for (1, 0) and -0.2 for (0, 2); class 2 has no prototype."""
    layout = replace(TWO, trainable=9, size=9, head=slice(0, 9))
    received = {"model": torch.zeros(9), "prototypes": torch.tensor([1.0, 0.0, 0.0, 2.0, 9.0, 9.0])}
    received["known"] = torch.tensor([1.0, 1.0, 0.0])
    own = client_strategy(evaluate="prototypes").own_model(
        received, {"private": torch.ones(9)}, replace(info_of((1,), 0, 1, 0.1), layout=layout)
    )
    logits = own[:6].view(3, 2) @ torch.tensor([0.5, 0.9]) + own[6:]
    assert logits[:2].tolist() == pytest.approx([0.0, -0.2])
    assert logits[2] < -9e5


def test_prototypes_need_a_bias():
    with pytest.raises(InputError, match=r"^strategy.client.evaluate=prototypes: the model's head has no bias"):
        client_strategy(evaluate="prototypes").private(TWO)


@pytest.mark.parametrize("weighting", ["clients", "samples"])
def test_networks(make_experiment, default_experiment, weighting):
    experiment = make_experiment(
        network=mlp,
        local={"epochs": 2},
        strategy=Strategy(client=client_strategy(strength=3.0, weighting=weighting), server=SERVER),
        clients_per_round=COHORT,
        population=replace(default_experiment.population, test_share=0.4),
    )
    simulation = Simulation(experiment)
    clients, settings = NaiveClients(epochs=2), {"strength": 3.0, "by_samples": weighting == "samples"}
    naive = NaiveFedProto(network_of(simulation, mlp), data_of(simulation), clients, 0, **settings)
    state, layout = simulation.initial(), simulation.network.layout
    for index in range(4):
        state, _ = simulation.advance(state)
        naive.round(index, select(0, index, len(naive.data), COHORT).tolist())
        prototypes = state.server.slots["prototypes"]
        for label, prototype in naive.prototypes.items():
            torch.testing.assert_close(prototypes.view(layout.classes, -1)[label], prototype, rtol=1e-4, atol=1e-5)
    for number, network in naive.models.items():
        own = layout.views(state.client_states.held[number]["private"])
        for name, tensor in network.state_dict().items():
            torch.testing.assert_close(own[name], tensor, rtol=1e-4, atol=1e-5)
    assert state.totals.params_up == state.totals.params_down == 4 * COHORT * layout.classes * (layout.embedding + 1)
    samples = sum(len(naive.data[k][1]) for index in range(4) for k in select(0, index, 6, COHORT).tolist())
    assert (state.totals.client_samples, state.totals.forward_samples) == (2 * samples, samples)


def test_without_pull_every_client_is_for_itself(make_experiment):
    models = []
    for pair in (
        Strategy(client=client_strategy(strength=0.0), server=SERVER),
        Strategy(client=option("strategy/client", "solo"), server=option("strategy/server", "solo")),
    ):
        simulation = Simulation(make_experiment(network=mlp, strategy=pair, clients_per_round=COHORT))
        state = advanced(simulation, 3)
        models.append(
            torch.stack([state.client_states.held[client]["private"] for client in sorted(state.client_states.held)])
        )
    torch.testing.assert_close(*models, rtol=1e-5, atol=1e-6)
