"""Attacks of a user's own that return what no attack can, or change what others read."""

from __future__ import annotations

import pytest
import torch

from fedrun.config.config_class import config_class
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.uploads.attacks.base import Attack
from fedrun.uploads.attacks.colluding import Colluding

from ..helpers.appeal import constant
from ..helpers.quadratic_clients import SGD, UNIFORM
from ..helpers.small_networks import mlp
from ..helpers.strategies import maxfl

AVERAGING = Strategy(client=SGD, server=UNIFORM)


@config_class
class Short(Attack):
    """Sends too few entries."""

    def tampered(self, model, broadcast, generator):
        return model[:3]


@config_class
class Nothing(Attack):
    """Forgets to return a model."""

    def tampered(self, model, broadcast, generator):
        pass


@config_class
class InPlace(Attack):
    """Changes the broadcast, which the next client receives."""

    def tampered(self, model, broadcast, generator):
        return broadcast.add_(1)


@config_class
class PerSample(Attack):
    """Reports more than one loss."""

    def reported(self, loss):
        return loss.expand(2)


@config_class
class Rowwise(Colluding):
    """Forges a displacement for every honest client."""

    def forged(self, honest, attackers):
        return -honest


@config_class
class Removes(Attack):
    """Removes the clients' samples instead of changing them."""

    def poisoned(self, federation, seed):
        return federation.train


def one_round(experiment: Experiment) -> tuple[torch.Tensor, torch.Tensor]:
    """The global model before and after a round."""
    simulation = Simulation(experiment)
    state = simulation.initial()
    return state.server.model, simulation.advance(state)[0].server.model


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (Short, r"Short\.tampered: returned float32 \[3\]; allowed: a tensor, float32 \[\d+\]$"),
        (Nothing, r"Nothing\.tampered: returned NoneType; allowed: a tensor, float32 \[\d+\]$"),
        (InPlace, r"InPlace\.tampered: has changed broadcast in place; allowed: a new tensor, such as a clone$"),
        (PerSample, r"PerSample\.reported: returned float64 \[2\]; allowed: a loss, a tensor without dimensions$"),
        (Rowwise, r"Rowwise\.forged: returned float32 \[\d, \d+\]; allowed: a tensor, float32 \[\d+\]$"),
        (Removes, r"Removes\.poisoned: returned ClientIndices; allowed: a Federation$"),
    ],
)
def test_a_mistake_is_one_line(make_experiment, attack: type[Attack], message: str, executor: str) -> None:
    part = {"strategy": maxfl(), "appeal": constant()} if attack is PerSample else {"strategy": AVERAGING}
    experiment = make_experiment(
        network=mlp, attack=attack(share=0.34, seed=None), hardware={"executor": executor}, **part
    )
    with pytest.raises(InputError, match=rf"^tests\.uploads\.test_attack_contract\.{message}"):
        one_round(experiment)


def test_the_arguments_may_be_returned(make_experiment) -> None:
    """A free rider sends the broadcast itself."""

    @config_class
    class FreeRider(Attack):
        def tampered(self, model, broadcast, generator):
            return broadcast

    experiment = make_experiment(network=mlp, attack=FreeRider(share=1.0, seed=None))
    initial, after = one_round(experiment)
    torch.testing.assert_close(after, initial)
