"""FedALA: worked numbers, and networks against naive rounds."""

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
from ..helpers.naive_personal import NaiveFedALA
from ..helpers.quadratic_clients import FEDAVG, info_of
from ..helpers.small_networks import COHORT, assert_equal_after, data_of, mlp, network_of


def adapted(weight_lr: float, samples: int, adapted: float, losses=lambda count: 0.0, is_new: bool = False):
    """The constants of a client with v = 2 and the loss (y - 1.6)^2 / 2 that receives x = 1; batches of 1 sample."""
    fedala = option("strategy/client", "fedala", tensors=1, sample_share=1.0, weight_lr=weight_lr)
    calls = []

    def gradient(model: torch.Tensor, positions: torch.Tensor) -> tuple[float, torch.Tensor]:
        calls.append(positions.tolist())
        return losses(len(calls)), model - 1.6

    info = info_of((samples,), 0, 1, 0.1, batch_size=1)
    info = replace(info, batch_gradient=gradient, is_new=torch.tensor([is_new]))
    state = {"local": torch.tensor([2.0]), "weights": torch.ones(1), "adapted": torch.tensor([adapted])}
    return fedala, fedala.constants({MODEL: torch.tensor([1.0])}, state, info), calls


@pytest.mark.parametrize(
    ("weight_lr", "batches", "weight", "start"),
    [(1.0, 1, 0.4, 1.6), (1.0, 3, 0.4, 1.6), (0.5, 1, 0.7, 1.3), (0.5, 2, 0.55, 1.45), (0.5, 3, 0.475, 1.525)],
)
def test_learned_weights(weight_lr, batches, weight, start):
    _, constants, calls = adapted(weight_lr, batches, 1.0)
    assert constants["weights"].item() == pytest.approx(weight)
    assert constants["start"].item() == pytest.approx(start)
    assert sorted(calls) == [[position] for position in range(batches)]


def test_a_client_is_evaluated_where_its_next_round_would_start():
    """v = 2, x = 1 and W = 0.7 from the last round: W becomes 0.7 - 0.5 (1.3 - 1.6) (1 - 2) = 0.55, θ = 1.45."""
    fedala = option("strategy/client", "fedala", tensors=1, sample_share=1.0, weight_lr=0.5)
    info = replace(info_of((1,), 0, 1, 0.1), batch_gradient=lambda model, positions: (0.0, model - 1.6))
    state = {"local": torch.tensor([2.0]), "weights": torch.tensor([0.7]), "adapted": torch.ones(1)}
    assert fedala.own_model({MODEL: torch.tensor([1.0])}, state, info).item() == pytest.approx(1.45)
    assert state["weights"].item() == pytest.approx(0.7)


def test_the_first_adaptation_repeats_its_passes():
    """Until the last ten losses agree to 0.1, and at least eleven."""
    assert len(adapted(0.5, 1, 0.0)[2]) == 11
    # the losses 1, 2, .., 20, then 20: of the last ten, one is 19 (a standard deviation of 0.3) in pass 29
    assert len(adapted(0.5, 1, 0.0, lambda count: float(min(count, 20)))[2]) == 29
    assert len(adapted(0.5, 1, 0.0, lambda count: float(count % 2))[2]) == 100


def test_a_new_client_starts_at_the_global_model():
    _, constants, calls = adapted(0.5, 1, 0.0, is_new=True)
    assert (constants["start"].item(), constants["weights"].item(), constants["adapted"].item()) == (1.0, 1.0, 0.0)
    assert calls == []


@pytest.mark.parametrize("tensors", [2, 3])
def test_networks(make_experiment, default_experiment, tensors):
    fedala = option("strategy/client", "fedala", tensors=tensors, sample_share=0.7, weight_lr=5.0)
    experiment = make_experiment(
        network=mlp,
        local={"epochs": 3},
        strategy=Strategy(client=fedala, server=FEDAVG),
        clients_per_round=COHORT,
        population=replace(default_experiment.population, test_share=0.4),
    )
    simulation = Simulation(experiment)
    top = ("encoder.1.bias", "head.weight", "head.bias")[-tensors:]
    clients = NaiveClients(epochs=3)
    naive = NaiveFedALA(network_of(simulation, mlp), data_of(simulation), clients, 0, top=top, share=0.7, rate=5.0)
    state = assert_equal_after(simulation, naive, 5)
    losses, moved = [], 0
    for vectors in state.client_states.held.values():
        moved += int((vectors["weights"] < 0.99).sum())
    assert moved > 10
    for number, own in enumerate(simulation.federation.client_test):
        logits = naive.tested(number)(simulation.dataset.inputs[own].float() / 255)
        losses.append(torch.nn.functional.cross_entropy(logits, simulation.dataset.targets[own], reduction="none"))
    assert simulation.test(state)["test/loss"] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-4)
    trained = [client for index in range(5) for client in select(0, index, len(naive.data), COHORT).tolist()]
    samples = 3 * sum(len(naive.data[client][1]) for client in trained)
    assert state.totals.client_samples == samples + sum(map(sum, naive.passes.values()))
