"""Of some candidates, the clients with the largest losses take part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.participation.base import Candidates, Participation, select
from fedrun.experiment.participation.power_of_choice import PowerOfChoice
from fedrun.experiment.strategy import ClusteredStrategy, Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import ClientStrategy
from fedrun.system.errors import InputError

from ..helpers.quadratic_clients import FEDAVG, SGD
from ..helpers.small_networks import mlp


def candidates(samples: list[int], losses: list[float], size: int, round: int = 0) -> Candidates:
    values = torch.tensor(losses, dtype=torch.float64)
    return Candidates(
        seed=0,
        round=round,
        rounds=10,
        size=size,
        samples=torch.tensor(samples),
        losses=lambda clients: values[clients],
        thresholds=lambda: pytest.fail("no thresholds are needed"),
        history={},
    )


def test_all_clients_are_candidates() -> None:
    found, metrics = PowerOfChoice(candidates=10.0).participants(
        candidates([1, 1, 1, 1, 1], [0.3, 0.9, 0.1, 0.7, 0.5], 2)
    )
    assert (found.tolist(), metrics) == ([1, 3], {})


def test_the_number_of_candidates_is_the_nearest_whole_one() -> None:
    """1.9 · 1 is about 2: both clients are candidates in every round, and the one with the larger loss takes part."""
    rule = PowerOfChoice(candidates=1.9)
    chosen = [rule.participants(candidates([1, 1], [0.1, 0.9], 1, round))[0].tolist() for round in range(10)]
    assert chosen == [[1]] * 10


def test_candidates_are_drawn_by_their_samples_and_the_largest_losses_stay() -> None:
    """Two of four are candidates, and the one with the larger loss stays, over 4 000 rounds.

    With n = (1, 1, 2, 4) the first is k with p_k = n_k / 8 and the second j with p_j / (1 − p_k); clients are in order
    of their losses, so the larger number of the pair stays.
    """
    shares = np.array([1, 1, 2, 4]) / 8
    expected = np.zeros(4)
    for first in range(4):
        for second in set(range(4)) - {first}:
            expected[max(first, second)] += shares[first] * shares[second] / (1 - shares[first])
    rounds = 4000
    counts = np.zeros(4)
    for round in range(rounds):
        of_round = candidates([1, 1, 2, 4], [0.1, 0.2, 0.3, 0.4], 1, round)
        (chosen,) = PowerOfChoice(candidates=2.0).participants(of_round)[0].tolist()
        counts[chosen] += 1
    deviation = np.sqrt(rounds * expected * (1 - expected))
    assert counts[0] == expected[0] == 0
    assert (abs(counts - rounds * expected) <= 4 * deviation).all()


def test_ties_are_broken_at_random() -> None:
    first = {
        PowerOfChoice(candidates=4.0).participants(candidates([1] * 4, [0.5] * 4, 1, round))[0].item()
        for round in range(40)
    }
    assert first == {0, 1, 2, 3}


def test_losses_are_those_of_the_global_model(make_experiment: Callable[..., Experiment]) -> None:
    rule = option("participation", "power_of_choice", candidates=2.0)
    experiment = make_experiment(network=mlp, clients_per_round=2, rounds=4, participation=rule)
    simulation = Simulation(experiment)
    state = simulation.initial()
    for round in range(3):
        network = mlp(simulation.dataset.spec)
        network.load_state_dict(simulation.network.layout.views(state.server.model.clone()))
        losses = []
        for client in range(6):
            own = simulation.federation.train[client]
            inputs, labels = simulation.dataset.inputs[own].float() / 255, simulation.dataset.targets[own]
            losses.append(torch.nn.functional.cross_entropy(network(inputs), labels).item())
        sizes = simulation.federation.train.sizes.tolist()
        expected = rule.participants(candidates(sizes, losses, 2, round))[0]
        found = simulation.uploads(state).clients
        assert found.tolist() == expected.tolist()
        state, _ = simulation.advance(state)


@pytest.mark.parametrize("kind", ["ditto", "clusters"])
def test_losses_are_those_of_the_models_that_clients_use(make_experiment: Callable[..., Experiment], kind: str) -> None:
    """Its own, or its cluster's, also if no client has test samples."""
    strategy = Strategy(client=option("strategy/client", "ditto"), server=FEDAVG)
    if kind == "clusters":
        parts = option("strategy/clustering", "ifca"), option("strategy/post_training", "none")
        strategy = ClusteredStrategy(client=SGD, server=FEDAVG, clustering=parts[0], post_training=parts[1])
    asked: list[float] = []

    @dataclass(frozen=True)
    class Asks(Participation):
        def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
            asked[:] = [candidates.rounds, *candidates.losses(torch.tensor([5, 0, 3])).tolist()]
            return torch.arange(6), {}

    experiment = make_experiment(network=mlp, clients_per_round=6, rounds=4, participation=Asks(), strategy=strategy)
    simulation = Simulation(experiment)
    state, _ = simulation.advance(simulation.initial())
    simulation.uploads(state)
    losses = []
    for client in (5, 0, 3):
        if kind == "clusters":
            assert state.membership is not None
            model = state.models[int(state.membership[client].argmax())].model
        else:
            model = state.client_states.held[client]["own"]
        network = mlp(simulation.dataset.spec)
        network.load_state_dict(simulation.network.layout.views(model.clone()))
        samples = simulation.federation.train[client]
        inputs, labels = simulation.dataset.inputs[samples].float() / 255, simulation.dataset.targets[samples]
        losses.append(torch.nn.functional.cross_entropy(network(inputs), labels).item())
    assert asked == pytest.approx([4, *losses], rel=1e-5)


@dataclass(frozen=True)
class Returns(Participation):
    """Returns what it is given."""

    numbers: torch.Tensor

    @property
    def varies(self) -> bool:
        return True

    def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
        return self.numbers, {"clients/asked": 9.0}


@pytest.mark.parametrize(
    ("numbers", "returned"),
    [
        ([4, 0, 4], "client 4 twice"),
        ([0, 6], "client 6"),
        ([-1], "client -1"),
        ([0.0], "float32 [1]"),
        ([[1]], "int64 [1, 1]"),
    ],
)
def test_what_a_users_rule_may_return(
    make_experiment: Callable[..., Experiment], numbers: list[float], returned: str
) -> None:
    rule = Returns(torch.tensor(numbers))
    simulation = Simulation(make_experiment(network=mlp, clients_per_round=2, participation=rule))
    with pytest.raises(InputError) as error:
        simulation.advance(simulation.initial())
    assert str(error.value) == (
        f"{__name__}.Returns.participants: returned {returned}; allowed: the numbers of different clients, int64 [C], "
        "each from 0 to 5, and a dictionary of numbers named clients/..."
    )


@dataclass(frozen=True)
class AsksFor(Participation):
    """Asks for the losses of what it is given, and then selects as usual."""

    clients: object

    def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
        losses = candidates.losses(cast("torch.Tensor", self.clients))
        return super().participants(candidates)[0], {"clients/asked": float(len(losses))}


@pytest.mark.parametrize("client", [SGD, option("strategy/client", "ditto")], ids=["sgd", "ditto"])
def test_whose_losses_a_users_rule_may_ask_for(
    make_experiment: Callable[..., Experiment], client: ClientStrategy
) -> None:
    strategy = Strategy(client=client, server=FEDAVG)

    def asked(clients: object) -> float:
        experiment = make_experiment(
            network=mlp, clients_per_round=2, participation=AsksFor(clients), strategy=strategy
        )
        simulation = Simulation(experiment)
        return simulation.advance(simulation.initial())[1]["clients/asked"]

    for clients, wrong in (([0, 1], "a list"), (torch.tensor([6]), "client 6"), (torch.tensor(2), r"int64 \[\]")):
        with pytest.raises(InputError, match=rf"^{__name__}.AsksFor.participants: asks for the losses of {wrong}; al"):
            asked(clients)
    assert asked(torch.tensor([5, 2])) == 2 and asked(torch.arange(0)) == 0


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_more_participants_than_usual_and_none(make_experiment: Callable[..., Experiment], executor: str) -> None:
    experiment = make_experiment(network=mlp, clients_per_round=2, hardware={"executor": executor})
    everyone = Simulation(replace(experiment, participation=Returns(torch.arange(6))))
    state, metrics = everyone.advance(everyone.initial())
    assert state.totals.client_samples == int(everyone.federation.train.sizes.sum())
    assert metrics["clients/asked"] == 9
    nobody = Simulation(replace(experiment, participation=Returns(torch.arange(0))))
    before = nobody.initial()
    state, _ = nobody.advance(before)
    assert state.server is before.server and state.round == 1


def test_uniform_selection_is_recognised() -> None:
    assert Participation().is_uniform
    assert not PowerOfChoice(candidates=2.0).is_uniform and not Returns(torch.arange(2)).is_uniform
    assert Participation().participants(candidates([1] * 9, [0.0] * 9, 3, 4))[0].tolist() == select(0, 4, 9, 3).tolist()
