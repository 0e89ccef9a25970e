"""Models without a head: strategies that need none train them, the others refuse by name."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError


def convolutional(spec):
    """Logits by a convolution and a mean: no linear layer."""
    encoder = nn.Sequential(nn.Conv2d(1, spec.classes, 3), nn.Flatten(2), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Identity()))


def with_head(spec):
    """A linear layer, as the head."""
    return nn.Sequential(OrderedDict(encoder=nn.Flatten(), head=nn.Linear(spec.input_shape[-1] ** 2, spec.classes)))


def without_head(spec):
    """The same linear layer, in the encoder."""
    linear = nn.Linear(spec.input_shape[-1] ** 2, spec.classes)
    return nn.Sequential(OrderedDict(encoder=nn.Sequential(nn.Flatten(), linear), head=nn.Identity()))


@pytest.mark.parametrize(
    "chosen",
    [
        ["strategy=fedlc"],
        ["strategy=fedrs"],
        ["strategy=feddisco"],
        ["strategy=fedconcat", "strategy/post_training=none", "strategy.clustering.clusters=2"],
    ],
    ids=" ".join,
)
def test_label_counts_need_no_head(make_experiment, chosen):
    states = []
    for network in (with_head, without_head):
        strategy = build_experiment(compose(chosen)).strategy
        simulation = Simulation(make_experiment(network=network, strategy=strategy))
        states.append(simulation.advance(simulation.initial())[0])
    for one, other in zip(states[0].models, states[1].models, strict=True):
        assert torch.equal(one.model, other.model)
    assert states[0].totals == states[1].totals


def test_fedavg_trains_it(make_experiment):
    states = []
    for executor in ("in_process", "vectorized"):
        simulation = Simulation(make_experiment(network=convolutional, hardware={"executor": executor}))
        states.append(simulation.advance(simulation.initial())[0])
    assert states[0].server.model.shape == (9 * 3 + 3,)
    torch.testing.assert_close(states[0].server.model, states[1].server.model)


@pytest.mark.parametrize(
    ("strategy", "part"),
    [
        ("turbosvm", "strategy/server=turbosvm"),
        ("fedaws", "strategy/server=fedaws"),
        ("moon", "strategy/client=moon"),
        ("fedper", "strategy/client=fedper"),
        ("fedproto", "strategy/client=fedproto"),
        ("pfedfda", "strategy/client=pfedfda"),
        ("fedconcat_ib", "strategy/clustering=bias_movement"),
        ("fedconcat_fedsoft", "strategy/post_training=classifier"),
    ],
)
def test_what_needs_a_head_refuses_by_name(make_experiment, strategy, part):
    chosen = build_experiment(compose([f"strategy={strategy}", "rounds=2"])).strategy
    experiment = make_experiment(network=convolutional, strategy=chosen, rounds=2)
    with pytest.raises(InputError, match=rf"^{part} needs a head, and this model has none"):
        Simulation(experiment)
