"""FedAMP and HeurFedAMP: worked numbers, a naive implementation, and servers that send each client its own model."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.participation.base import select
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import ClientStrategy, Measurement
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import ServerState
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError, RunError
from fedrun.system.randomness import generator

from ..conftest import first_executor
from ..helpers.naive_averaging import NaiveClients, floats, weighted_mean
from ..helpers.quadratic_clients import round_of, update_of
from ..helpers.small_networks import COHORT, advanced, data_of, logistic, mlp, network_of

E1 = math.exp(-1.0)


def server(name: str, **settings: object):
    return option("strategy/server", name, **settings)


def after(strategy, state: ServerState, clients: list[int], rows: list[list[float]]) -> ServerState:
    """The state after a round in which these of three clients have sent these models."""
    sent = torch.tensor(rows)
    update = update_of({MODEL: sent.mean(0)}, (1,) * len(rows))
    update = replace(update, clients=torch.tensor(clients), rows=sent)
    return strategy.aggregate(state, update, round_of(0, 3))[0]


def received(strategy, state: ServerState) -> torch.Tensor:
    return strategy.models_for(state, torch.arange(3), round_of(0, 3).layout)


def start(strategy, initial: float) -> ServerState:
    return strategy.init(torch.tensor([initial]), round_of(0, 3).layout, 3)


def test_fedamp_by_hand():
    """Models 1 and 2 lie 1 apart, so each takes α/σ e^-1 of the other; a third, 4, lies 9 and 4 from them."""
    strategy = server("fedamp", alpha=0.5, sigma=1.0)
    state = start(strategy, 7.0)
    assert received(strategy, state).flatten().tolist() == [7.0, 7.0, 7.0]
    state = after(strategy, state, [2, 0], [[2.0], [1.0]])
    assert received(strategy, state).flatten().tolist() == pytest.approx([1 + E1 / 2, 7.0, 2 - E1 / 2])
    state = after(strategy, state, [1], [[4.0]])
    e4, e9 = math.exp(-4.0), math.exp(-9.0)
    expected = [1 + E1 / 2 + 3 * e9 / 2, 4 - 2 * e4 / 2 - 3 * e9 / 2, 2 - E1 / 2 + 2 * e4 / 2]
    assert received(strategy, state).flatten().tolist() == pytest.approx(expected)
    assert state.model.item() == 4.0  # the newest participants' mean


def test_sigma_is_the_squared_distance_within_which_models_attract_each_other():
    """2 apart with σ = 4: the other model weighs 0.4 / 4 e^-1."""
    strategy = server("fedamp", alpha=0.4, sigma=4.0)
    state = after(strategy, start(strategy, 0.0), [0, 1], [[1.0], [3.0]])
    assert received(strategy, state)[0].item() == pytest.approx(1 + 0.2 * E1)


def test_weights_above_one_are_rejected():
    """Three equal models: each weighs 0.6 for the others, 1.2 in all."""
    strategy = server("fedamp", alpha=0.6, sigma=1.0)
    message = "^strategy.server.alpha=0.6: the weights of the other clients' models sum to 1.2, .*; lower alpha$"
    with pytest.raises(RunError, match=message):
        after(strategy, start(strategy, 0.0), [0, 1, 2], [[1.0], [1.0], [1.0]])


@pytest.mark.parametrize("sigma", [0.5, 20.0])
def test_by_default_the_other_models_weigh_a_fifth_at_most(sigma):
    """Of three clients each equal model weighs 1/15; one that lies 1 apart weighs e^(-1/σ) of it."""
    strategy = server("fedamp", sigma=sigma)
    equal = torch.zeros(1, 3, dtype=torch.float64)
    assert strategy.attention(equal)[0].tolist() == pytest.approx([1 / 15, 1 / 15, 1 / 15])
    state = after(strategy, start(strategy, 7.0), [0, 1], [[1.0], [2.0]])
    assert received(strategy, state)[0].item() == pytest.approx(1 + math.exp(-1 / sigma) / 15)


def test_heurfedamp_by_hand():
    """Cosines of 1, 2 and -3: 1 and -1. Client 0 takes 3/4 of the others, e^σ : e^-σ = 4 : 1 for σ = ln 2."""
    strategy = server("heurfedamp", self_weight=0.25, sigma=math.log(2))
    state = after(strategy, start(strategy, 7.0), [0], [[1.0]])
    assert received(strategy, state).flatten().tolist() == [1.0, 7.0, 7.0]  # no other model is known
    state = after(strategy, state, [1, 2], [[2.0], [-3.0]])
    mixed = 0.25 * 1 + 0.75 * (0.8 * 2 + 0.2 * -3)
    opposite = 0.25 * -3 + 0.75 * (0.5 * 1 + 0.5 * 2)
    assert received(strategy, state).flatten().tolist()[::2] == pytest.approx([mixed, opposite])
    equal = server("heurfedamp", self_weight=0.25, sigma=0.0)
    assert received(equal, state)[0].item() == pytest.approx(0.25 * 1 + 0.75 * (2 - 3) / 2)


def naive_weights(name: str, own: dict[int, nn.Module], client: int) -> dict[int, float]:
    """The weight of every known client's model for a client."""

    def flat(network: nn.Module) -> torch.Tensor:
        return torch.cat([tensor.detach().flatten() for tensor in network.parameters()]).double()

    mine = flat(own[client])
    others = {other: flat(network) for other, network in own.items() if other != client}
    if name == "fedamp":
        weights = {
            other: 0.1 / 2 * math.exp(-float((mine - theirs).square().sum()) / 2) for other, theirs in others.items()
        }
        return {client: 1 - sum(weights.values()), **weights}
    exponents = {
        other: math.exp(3 * float(torch.cosine_similarity(mine, theirs, 0))) for other, theirs in others.items()
    }
    total = sum(exponents.values())
    return {client: 0.4 if others else 1.0, **{other: 0.6 * each / total for other, each in exponents.items()}}


SETTINGS = {"fedamp": {"alpha": 0.1, "sigma": 2.0}, "heurfedamp": {"self_weight": 0.4, "sigma": 3.0}}


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize("name", SETTINGS)
def test_against_a_naive_implementation(make_experiment, default_experiment, name, executor):
    strategy = Strategy(client=option("strategy/client", "fedamp", mu=0.5), server=server(name, **SETTINGS[name]))
    population = replace(default_experiment.population, test_share=0.4)
    simulation = Simulation(
        make_experiment(
            network=mlp,
            strategy=strategy,
            clients_per_round=COHORT,
            population=population,
            hardware={"executor": executor},
        )
    )
    common, data = network_of(simulation, mlp), data_of(simulation)
    views = simulation.network.layout.views
    state, own = simulation.initial(), dict[int, nn.Module]()
    for index in range(4):
        sent = {}
        for client in select(0, index, 6, COHORT).tolist():
            network, anchor = copy.deepcopy(own.get(client, common)), floats(common)
            if client in own:
                weights = naive_weights(name, own, client)
                anchor = weighted_mean([own[other] for other in weights], list(weights.values()))
            x, y = data[client]
            optimizer = torch.optim.SGD(network.parameters(), 0.1)
            for batch in torch.randperm(len(y), generator=generator(0, "batches", index, client)).split(4):
                loss = nn.functional.cross_entropy(network(x[batch]), y[batch])
                for key, parameter in network.named_parameters():
                    loss = loss + 0.5 / 2 * (parameter - anchor[key]).square().sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            sent[client] = network
        own |= sent
        state, metrics = simulation.advance(state)
        for client, network in own.items():
            for key, view in views(state.client_states.held[client]["own"]).items():
                torch.testing.assert_close(view, network.state_dict()[key], rtol=1e-5, atol=1e-6)
        mean = weighted_mean(list(sent.values()), [len(data[client][1]) for client in sent])
        for key, view in views(state.server.model).items():
            torch.testing.assert_close(view, mean[key], rtol=1e-5, atol=1e-6)
        of_own = [naive_weights(name, own, client)[client] for client in own]
        assert metrics["server/self_weight"] == pytest.approx(sum(of_own) / len(of_own), rel=1e-5)
    assert state.totals.params_down == state.totals.params_up == 4 * COHORT * simulation.network.layout.size


# --- servers that send each client its own model ---


def sent_to(model: torch.Tensor, client: int) -> torch.Tensor:
    """A model of its own for each client, whose outputs also differ."""
    return model + client * torch.linspace(0, 1, len(model))


@config_class
class Numbered(FedAvg):
    """FedAvg that sends each client a model that depends on its number."""

    def models_for(self, state, clients, layout):
        return torch.stack([sent_to(state.model, client) for client in clients.tolist()])


@config_class
class Keeper(ClientStrategy):
    """Is evaluated by the model that it would receive, and remembers the one that it has received."""

    wants: ClassVar[frozenset[Measurement]] = frozenset({"initial_loss", "initial_gradient"})

    def client_state(self, layout):
        return {"received": layout.size, "gradient": layout.trainable, "loss": 1}

    def own_model(self, received, client_state, client):
        return received[MODEL]

    def finish(self, model, received, client_state, constants, client):
        kept = received[MODEL].expand_as(model)
        return {MODEL: model}, {
            "received": kept,
            "gradient": client.initial_gradient,
            "loss": client.initial_loss.float(),
        }


@config_class
class Recording(Numbered):
    """Keeps the clients' models of the newest round, by client."""

    rows = "all"

    def init(self, model, layout, clients):
        return ServerState(model, {"rows": model.new_zeros(clients, len(model))})

    def aggregate(self, state, update, round):
        rows = torch.zeros_like(state.slots["rows"])
        rows[update.clients] = update.rows
        return ServerState(update.mean[MODEL], {"rows": rows}), {}


def numbered(make_experiment, server=None, **settings) -> Simulation:
    strategy = Strategy(client=Keeper(), server=server or Recording(weighting="samples"))
    return Simulation(make_experiment(network=logistic, strategy=strategy, clients_per_round=COHORT, **settings))


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_clients_train_and_measure_from_their_own_models(make_experiment, executor):
    simulation = numbered(make_experiment, hardware={"executor": executor})
    initial = simulation.initial()
    state, _ = simulation.advance(initial)
    data = data_of(simulation)
    for client in select(0, 0, 6, COHORT).tolist():
        network = network_of(simulation, logistic)
        model, held = sent_to(initial.server.model, client), state.client_states.held[client]
        network.load_state_dict(simulation.network.layout.views(model))
        torch.testing.assert_close(held["received"], model)
        loss = nn.functional.cross_entropy(network(data[client][0]), data[client][1])
        gradients = torch.autograd.grad(loss, tuple(network.parameters()))
        assert held["loss"].item() == pytest.approx(loss.item(), rel=1e-5)
        views = simulation.network.layout.views(held["gradient"])
        for (key, _), gradient in zip(network.named_parameters(), gradients, strict=True):
            torch.testing.assert_close(views[key], gradient, rtol=1e-4, atol=1e-6)
        order = generator(0, "batches", 0, client)
        trained, _ = NaiveClients().train(network, *data[client], order, 0)
        rows = simulation.network.layout.views(state.server.slots["rows"][client])
        for key, tensor in trained.state_dict().items():
            torch.testing.assert_close(rows[key], tensor, rtol=1e-5, atol=1e-6)


def test_clients_are_evaluated_by_the_model_that_they_would_receive(make_experiment):
    simulation = numbered(make_experiment)
    state = advanced(simulation)
    participants = select(0, 0, 6, COHORT).tolist()
    for client in range(6):
        (own,) = simulation.evaluator(state).models_of(state, client)
        expected = sent_to(state.server.model, client) if client in participants else state.server.model
        torch.testing.assert_close(own, expected)


@config_class
class Stateless(ClientStrategy):
    """Is evaluated by the model that it would receive."""

    def own_model(self, received, client_state, client):
        return received[MODEL]


def test_clients_without_a_state_are_evaluated_by_their_own_models_from_the_beginning(make_experiment):
    strategy = Strategy(client=Stateless(), server=Numbered(weighting="samples"))
    simulation = Simulation(make_experiment(network=logistic, strategy=strategy, clients_per_round=COHORT))
    state = advanced(simulation)
    for client in range(6):
        (own,) = simulation.evaluator(state).models_of(state, client)
        torch.testing.assert_close(own, sent_to(state.server.model, client))


class Centred(nn.Module):
    """Subtracts a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.ones(16))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs - self.centre


def centred(spec):
    encoder = nn.Sequential(nn.Flatten(), Centred())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(16, spec.classes)))


def test_models_with_other_buffers_are_trained_in_process(make_experiment):
    hardware = {"executor": "vectorized"}
    own, common = (Strategy(client=Keeper(), server=kind(weighting="samples")) for kind in (Numbered, FedAvg))
    executors = [
        first_executor(Simulation(make_experiment(network=centred, strategy=strategy, hardware=hardware))).name
        for strategy in (own, common)
    ]
    assert executors == ["in_process", "vectorized"]


def test_sparse_uploads_are_steps_from_the_clients_own_models(make_experiment):
    """Five of 51 entries are sent: the others arrive as what the client has received."""
    compression = option("compression", "topk", fraction=0.1, memory="none")
    simulation = numbered(make_experiment, compression=compression)
    initial = simulation.initial()
    state, _ = simulation.advance(initial)
    for client in select(0, 0, 6, COHORT).tolist():
        unsent = state.server.slots["rows"][client] == sent_to(initial.server.model, client)
        assert unsent.sum() == 51 - 5


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_rounded_models_lose_nothing_on_the_server(make_experiment, executor):
    """Clients do not move from the rounded models, so the server receives those that it has sent."""
    compression = option("compression", "none", down="half")
    simulation = numbered(
        make_experiment, compression=compression, local={"lr": 1e-30}, hardware={"executor": executor}
    )
    initial = simulation.initial()
    state, _ = simulation.advance(initial)
    for client in select(0, 0, 6, COHORT).tolist():
        sent, got = sent_to(initial.server.model, client), state.client_states.held[client]["received"]
        torch.testing.assert_close(got, sent.half().float())
        assert (got != sent).any()
        torch.testing.assert_close(state.server.slots["rows"][client], sent, rtol=0, atol=1e-6)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_attackers_reverse_their_steps_from_their_own_models(make_experiment, executor):
    hardware = {"executor": executor}
    honest = advanced(numbered(make_experiment, hardware=hardware)).server.slots["rows"]
    attack = option("attack", "sign_flip", share=1.0)
    simulation = numbered(make_experiment, attack=attack, hardware=hardware)
    initial = simulation.initial()
    state, _ = simulation.advance(initial)
    for client in select(0, 0, 6, COHORT).tolist():
        sent = sent_to(initial.server.model, client)
        torch.testing.assert_close(state.server.slots["rows"][client], 2 * sent - honest[client])


@config_class
class Short(Numbered):
    def models_for(self, state, clients, layout):
        return state.model[None, :5]


@config_class
class Normed(Numbered):
    wants: ClassVar[frozenset[str]] = frozenset({"squared_norms"})


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (
            Short(weighting="samples"),
            r"\.Short\.models_for: returned float32 \[1, 5\]; allowed: a model for every client, float32 \[4, 51\]$",
        ),
        (
            Normed(weighting="samples"),
            r"\.Normed\.models_for with squared_norms, which needs one model that all clients receive;",
        ),
    ],
)
def test_mistakes_are_named(make_experiment, strategy, message):
    with pytest.raises(InputError, match=message):
        advanced(numbered(make_experiment, strategy))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("strategy/client=sgd",),
            r"^strategy/server=fedamp sends each client .*; allowed: strategy/client=apfl, ditto,",
        ),
        (("aggregation=fedbuff", "clock=tiers"), r"^aggregation=fedbuff with strategy/server=fedamp, which sends each"),
        (
            ("strategy/client=ditto", "attack=ipm"),
            r"^attack=ipm forges steps from one model, and strategy/server=fedamp sends each client another;",
        ),
        (
            ("attack=sign_flip",),
            r"^attack=sign_flip with strategy/client=fedamp, whose clients start at their own models",
        ),
        (
            ("compression=topk",),
            r"^compression.memory=client with strategy/client=fedamp, whose clients start at their",
        ),
        (
            ("compression.down=half",),
            r"^compression.down=half with strategy/client=fedamp, whose clients start at their",
        ),
        (("strategy=ifca", "strategy/server=fedamp"), r"^strategy/server=fedamp is incompatible with clusters; choose"),
        (("local.repair_nonfinite=true",), r"^local.repair_nonfinite=true with strategy/server=fedamp, whose next"),
    ],
)
def test_incompatible_parts(overrides, message):
    with pytest.raises(InputError, match=message):
        build_experiment(compose(["strategy=fedamp", *overrides]))
