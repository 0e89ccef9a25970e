"""The backdoor: which samples have the trigger, and its success in a test."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.data.datasets.base import Spec
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client_state import PRIVATE
from fedrun.system.errors import InputError

from ..helpers.fedconcat_models import fedconcat, logits
from ..helpers.small_networks import advanced, mlp

BACKDOOR = option("attack", "backdoor", share=0.34, label=2, size=2, poisoned_share=0.5)


def test_which_samples_have_the_trigger(make_experiment):
    honest = Simulation(make_experiment(network=mlp))
    attacked = Simulation(make_experiment(network=mlp, attack=BACKDOOR))
    before, after, federation = honest.dataset, attacked.dataset, attacked.federation
    changed = (after.targets[: len(before.targets)] != before.targets) | (
        after.inputs[: len(before.inputs)] != before.inputs
    ).flatten(1).any(1)
    assert len(federation.attackers) == 2
    of_first = []
    for client in range(6):
        own = federation.train[client]
        poisoned = [sample for sample in own.tolist() if (after.inputs[sample, 0, 2:, 2:] == 255).all()]
        assert len(poisoned) == (round(0.5 * len(own)) if client in federation.attackers else 0)
        assert set(own[changed[own]].tolist()) <= set(poisoned)
        assert (after.targets[poisoned] == 2).all()
        of_first += [sample in own.tolist()[: len(poisoned)] for sample in poisoned]
    assert not all(of_first)  # they are drawn at random
    test = federation.test.samples
    assert not changed[test].any()
    others = test[before.targets[test] != 2]
    assert torch.equal(after.inputs[federation.triggered][:, :, :2], before.inputs[others][:, :, :2])
    assert (after.inputs[federation.triggered][:, :, 2:, 2:] == 255).all()


def test_its_success_is_measured(make_experiment):
    """All clients attack with all samples: every image gets the label; without an attack few do."""
    everyone = replace(BACKDOOR, share=1.0, poisoned_share=1.0)
    experiment = make_experiment(network=mlp, attack=everyone, clients_per_round=6, local={"lr": 0.5})
    simulation = Simulation(experiment)
    state = advanced(simulation, 5)
    assert simulation.test(state)["test/attack_success"] == 1.0
    honest = Simulation(replace(experiment, attack=option("attack", "none")))
    assert "test/attack_success" not in honest.test(honest.initial())


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"size": 5}, r"^attack\.size=5: the images are 4 x 4"), ({"label": 3}, r"allowed: 0 to 2$")],
)
def test_what_does_not_fit(make_experiment, changes, message):
    with pytest.raises(InputError, match=message):
        Simulation(make_experiment(network=mlp, attack=replace(BACKDOOR, **changes)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            lambda images: replace(images, inputs=images.inputs.float()),
            r"^attack=backdoor: the images are float32 with the encoding Scaled; allowed: uint8 with Scaled, whose",
        ),
        (
            lambda images: replace(images, inputs=images.inputs.flatten(1), spec=Spec(input_shape=(16,), classes=3)),
            r"^attack=backdoor: the samples are \[16\]; allowed: images \[channels, height, width\]",
        ),
    ],
)
def test_samples_that_it_cannot_mark(make_experiment, changed, message):
    images = make_experiment().dataset.load()
    experiment = make_experiment(network=mlp, dataset=changed(images), attack=BACKDOOR)
    with pytest.raises(InputError, match=message):
        Simulation(experiment)


@pytest.mark.parametrize("features", ["cached", "recomputed"])
def test_its_success_is_measured_on_cached_features(make_experiment, features):
    """Features of test images with the trigger are computed, too; without them the classifier would read zeros."""
    everyone = replace(BACKDOOR, share=1.0, poisoned_share=1.0)
    strategy = fedconcat(rounds=1, clusters=2)
    strategy = replace(strategy, post_training=replace(strategy.post_training, features=features))
    simulation = Simulation(
        make_experiment(network=mlp, attack=everyone, strategy=strategy, rounds=2, clients_per_round=6)
    )
    state = advanced(simulation, 2)
    triggered = simulation.federation.triggered
    expected = (logits(simulation, state, triggered).argmax(1) == BACKDOOR.label).double().mean().item()
    assert simulation.test(state)["test/attack_success"] == pytest.approx(expected)
    inputs = simulation.phase(state).federation.dataset.inputs
    assert inputs[triggered].flatten(1).any(1).all()


def test_its_success_on_clients_own_models(make_experiment):
    """FedPer: the mean over honest clients of what the global encoder with the client's own head gets wrong."""
    client, server = option("strategy/client", "fedper"), option("strategy/server", "fedavg")
    strategy = Strategy(client=client, server=server)
    simulation = Simulation(make_experiment(network=mlp, attack=BACKDOOR, strategy=strategy, clients_per_round=3))
    state = advanced(simulation, 3)
    triggered, head = simulation.federation.triggered, simulation.network.layout.head
    images, _ = simulation.phase(state).samples.gather(triggered)
    shares = []
    for number in sorted(set(range(6)) - simulation.federation.attackers):
        model, held = state.server.model.clone(), state.client_states.held.get(number)
        if held is not None:
            model[head] = held[PRIVATE]
        simulation.network.load(model)
        with torch.no_grad():
            logits = simulation.network.network.eval()(simulation.phase(state).samples.encoding(images))
        shares.append((logits.argmax(1) == BACKDOOR.label).double().mean().item())
    assert len(shares) == 4 and sum(shares) / 4 != simulation.evaluator(state).results(state, triggered).mean_score
    assert simulation.test(state)["test/attack_success"] == pytest.approx(sum(shares) / 4)
