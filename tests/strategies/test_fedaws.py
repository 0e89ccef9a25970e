"""FedAwS: worked numbers, networks against a naive server, other bases."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.fedaws import positive_cosines
from fedrun.strategies.head_refinement import HeadRefinement
from fedrun.strategies.server import ServerStrategy
from fedrun.system.errors import InputError

from ..helpers.naive_strategies import NaiveFedAwS
from ..helpers.quadratic_clients import SGD, UNIFORM
from ..helpers.small_networks import NETWORKS, advanced, assert_as_naive, mlp
from ..helpers.strategies import fedaws


def test_only_positive_cosines_of_different_classes_count():
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, -1.0]], requires_grad=True)
    loss = positive_cosines(embeddings)
    loss.backward()
    assert loss.item() == pytest.approx(0.7071068, abs=1e-6)
    expected = torch.tensor([[0, 0.7071068], [0.3535534, -0.3535534], [0, 0]])
    torch.testing.assert_close(embeddings.grad, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("bias", ["coordinate", "separate"])
def test_networks(make_experiment, network, bias):
    def naive(*arguments):
        return NaiveFedAwS(*arguments, 0.05, 1e-3, bias == "coordinate")

    strategy = Strategy(client=SGD, server=fedaws(bias=bias, eps=1e-3))
    assert_as_naive(make_experiment, network, naive, strategy=strategy)


def test_the_encoder_is_the_bases(make_experiment):
    """With FedAdam below, the encoder is FedAdam's after one round and its moments are kept beside FedAwS's own."""
    adam = option("strategy/server", "fedadam", lr=0.1, eps=1e-3)
    ended = {}
    for name, server in (("base", adam), ("both", fedaws(adam))):
        experiment = make_experiment(network=NETWORKS["mlp"], strategy=Strategy(client=SGD, server=server))
        simulation = Simulation(experiment)
        ended[name] = simulation.advance(simulation.initial())[0].server
    head = simulation.network.layout.head
    assert torch.equal(ended["base"].model[: head.start], ended["both"].model[: head.start])
    assert not torch.equal(ended["base"].model[head], ended["both"].model[head])
    assert ended["both"].slots.keys() == ended["base"].slots.keys() | {"fedaws/m", "fedaws/v", "fedaws/step"}


def test_it_leaves_everything_else_to_its_base():
    """Whatever a server strategy may say of itself is said by the base, but for what a head refinement is about."""
    own = {"init", "aggregate", "check", "needs_classes"}
    hooks = {name for name in vars(ServerStrategy) if not name.startswith("_")} - own
    assert {"needs", "idle_training", "steps", "weights", "sends"} <= hooks
    assert hooks <= vars(HeadRefinement).keys()


def test_idle_clients_train_for_a_base_that_wants_them(make_experiment):
    base = option("strategy/server", "fedumf", alpha=0.5)
    found = []
    for server in (base, fedaws(base)):
        strategy = Strategy(client=SGD, server=server)
        simulation = Simulation(make_experiment(network=mlp, strategy=strategy, clients_per_round=2, rounds=3))
        state = advanced(simulation, 3)
        found.append((state.totals, state.client_states.held.keys()))
    assert found[0] == found[1]


def test_it_cannot_be_its_own_base():
    with pytest.raises(InputError, match=r"strategy\.server\.base: FedAwS cannot be its own base"):
        fedaws(fedaws()).check(10)
    turbosvm = build_experiment(compose(["strategy=turbosvm"]).config).strategy.server
    between = replace(turbosvm, base=fedaws())
    with pytest.raises(InputError, match=r"strategy\.server\.base: FedAwS cannot be its own base"):
        fedaws(between).check(10)  # both would keep Adam's state under one name
    between.check(10)
    build_experiment(compose(["strategy=fedaws", "strategy/server@strategy.server.base=fedyogi"]).config)


def test_fedexp_is_no_base():
    """Its clients receive an iterate that is not the refined model: the refinement would have no effect on training."""
    with pytest.raises(InputError, match=r"strategy\.server\.base: FedExP evaluates another model"):
        fedaws(option("strategy/server", "fedexp")).check(10)


def test_no_base_whose_broadcast_does_not_follow_from_its_model():
    class Ahead(type(UNIFORM)):
        refinable = False

    with pytest.raises(InputError, match=r"strategy\.server\.base: Ahead evaluates another model"):
        fedaws(Ahead(weighting="uniform")).check(10)
