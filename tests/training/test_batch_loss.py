"""Client strategies that change the inputs of a batch, against naive training with the same inputs."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedrun.config.build import option
from fedrun.config.config_class import config_class
from fedrun.experiment.participation.base import select
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import ClientStrategy
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator
from fedrun.training.fused_sgd import LARGE

from ..conftest import first_executor
from ..helpers.naive_averaging import NaiveClients, weighted_mean
from ..helpers.small_networks import COHORT, advanced, batch_norm, data_of, mlp, network_of

STEP = 0.05


def wide(spec: Any) -> nn.Sequential:
    """The first layer is so large that plain SGD moves it in its backward pass."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, LARGE // 16), nn.ReLU())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(LARGE // 16, spec.classes)))


@config_class
class Mixed(ClientStrategy):
    """Trains on means of two samples."""

    def batch_loss(self, network, inputs, targets, constants):
        outputs = network((inputs + inputs.flip(0)) / 2)
        return (self.loss(outputs, targets, constants) + self.loss(outputs, targets.flip(0), constants)) / 2


@config_class
class Adversarial(ClientStrategy):
    """Trains on inputs that are moved along the sign of the loss's gradient."""

    passes: ClassVar[tuple[int, ...]] = (2,)

    def batch_loss(self, network, inputs, targets, constants):
        moving = inputs.clone().requires_grad_()
        loss = self.loss(network(moving), targets, constants).sum()
        (gradient,) = torch.autograd.grad(loss, moving)
        return self.loss(network(inputs + STEP * gradient.sign()), targets, constants)


def mixed(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = network((x + x.flip(0)) / 2)
    return (F.cross_entropy(logits, y) + F.cross_entropy(logits, y.flip(0))) / 2


def adversarial(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    moving = x.clone().requires_grad_()
    F.cross_entropy(network(moving), y).backward()
    assert moving.grad is not None
    return F.cross_entropy(network(x + STEP * moving.grad.sign()), y)


STRATEGIES: list[tuple[ClientStrategy, Callable[..., torch.Tensor]]] = [(Mixed(), mixed), (Adversarial(), adversarial)]


def simulation_of(make_experiment: Any, client: ClientStrategy, **settings: Any) -> Simulation:
    strategy = Strategy(client=client, server=option("strategy/server", "fedavg"))
    return Simulation(make_experiment(strategy=strategy, clients_per_round=COHORT, **settings))


@pytest.mark.parametrize("build", [mlp, batch_norm, wide])
@pytest.mark.parametrize(("client", "loss"), STRATEGIES)
def test_against_naive_training(make_experiment: Any, client: ClientStrategy, loss: Any, build: Any) -> None:
    simulation = simulation_of(make_experiment, client, network=build)
    data, common = data_of(simulation), network_of(simulation, build)
    state, batches, samples = simulation.initial(), NaiveClients(), 0
    for index in range(2):
        trained, cohort = [], select(0, index, len(data), COHORT).tolist()
        for k in cohort:
            network, (x, y) = copy.deepcopy(common).train(), data[k]
            optimizer = torch.optim.SGD(network.parameters(), batches.lr)
            for batch in batches.batches(len(y), generator(0, "batches", index, k)):
                value = loss(network, x[batch], y[batch])
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
            trained.append(network)
        common.load_state_dict(weighted_mean(trained, [len(data[k][1]) for k in cohort]), strict=False)
        state, _ = simulation.advance(state)
        for name, view in simulation.network.layout.views(state.server.model).items():
            torch.testing.assert_close(view, common.state_dict()[name], rtol=1e-5, atol=1e-6)
        samples += sum(client.passes) * sum(len(data[k][1]) for k in cohort)
    assert state.totals.client_samples == samples


def test_the_training_score_is_that_of_the_inputs_of_the_first_call(make_experiment: Any) -> None:
    """The mean model of two samples is right about each with a chance; here the model does not move."""
    simulation = simulation_of(make_experiment, Mixed(), network=mlp, local={"lr": 1e-30, "batch_size": None})
    state = simulation.initial()
    _, metrics = simulation.advance(state)
    network, right, whole = network_of(simulation, mlp), 0, 0
    for k in select(0, 0, 6, COHORT).tolist():
        x, y = data_of(simulation)[k]
        order = torch.randperm(len(y), generator=generator(0, "batches", 0, k))
        x, y = x[order], y[order]
        right += int((network((x + x.flip(0)) / 2).argmax(1) == y).sum())
        whole += len(y)
    assert metrics["train/accuracy"] == pytest.approx(right / whole)


def test_predicted_costs_count_the_calls(make_experiment: Any) -> None:
    simulation = simulation_of(make_experiment, Adversarial(), network=mlp)
    executor = first_executor(simulation)
    sizes = simulation.federation.train.sizes
    assert executor.usual_samples[:, 0].tolist() == (2 * sizes).tolist()


def test_a_gpu_does_not_record_it() -> None:
    from fedrun.data.datasets.base import Scaled
    from fedrun.training.recorded_steps import can_record

    assert can_record(ClientStrategy(), Scaled(divisor=1.0))
    assert not can_record(Mixed(), Scaled(divisor=1.0))


def test_clients_train_in_process(make_experiment: Any, caplog: pytest.LogCaptureFixture) -> None:
    simulation = simulation_of(make_experiment, Mixed(), network=mlp, hardware={"executor": "vectorized"})
    assert first_executor(simulation).name == "in_process"
    assert "Mixed, which trains on inputs of its own; using in_process" in caplog.text


@config_class
class Silent(ClientStrategy):
    def batch_loss(self, network, inputs, targets, constants):
        return inputs.flatten(1).sum(1).requires_grad_()


@config_class
class Short(ClientStrategy):
    def batch_loss(self, network, inputs, targets, constants):
        return network(inputs[:1]).logits.sum() + 0 * targets


@config_class
class Mean(ClientStrategy):
    def batch_loss(self, network, inputs, targets, constants):
        return self.loss(network(inputs), targets, constants).mean()


@config_class
class Recalling(Mixed):
    wants: ClassVar[frozenset[str]] = frozenset({"earlier_embeddings"})


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (Silent(), r"Silent.batch_loss: returned losses without a call of network; allowed: at least one call$"),
        (
            Short(),
            r"Short.batch_loss: returned the first call of network has 1 inputs; allowed: those of the batch, 4,",
        ),
        (Mean(), r"Mean.batch_loss: returned float32 \[\]; allowed: the loss of every sample, \[4\]$"),
        (Recalling(), r"Recalling.batch_loss with earlier_embeddings, which"),
    ],
)
def test_mistakes_are_named(make_experiment: Any, client: ClientStrategy, message: str) -> None:
    with pytest.raises(InputError, match=message):
        advanced(simulation_of(make_experiment, client, network=mlp))


def test_with_noise_for_single_samples_it_is_rejected(make_experiment: Any) -> None:
    experiment = make_experiment(network=mlp, privacy=option("privacy", "sample_level", noise_multiplier=1.0))
    strategy = Strategy(client=Mixed(), server=option("strategy/server", "fedavg"))
    with pytest.raises(InputError, match="clients would train on inputs of their own, without noise"):
        replace(experiment, strategy=strategy)
