"""The trial of a network before a run."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm

from fedrun.data.datasets.base import Spec
from fedrun.models.trial import check_network, mixes_samples
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..conftest import MakeExperiment

SPEC = Spec((2, 3), 4)


def classifier(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(6, 4))


class Replacing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.add_(1)
        return x


class Centred(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


class Standardised(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(0)) / x.std(0)  # NaN for copies of one sample


class Random(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x)


NETWORKS = {
    "random": lambda: classifier(Random()),
    "counting": lambda: classifier(Counting()),
    "batch norm": lambda: classifier(nn.BatchNorm1d(6)),
    "dropout": lambda: classifier(nn.Dropout(0.5)),
    "spectral norm": lambda: classifier(spectral_norm(nn.Linear(6, 6))),
    "parametrised": lambda: classifier(parametrizations.weight_norm(nn.Linear(6, 6))),
    "pruned": lambda: classifier(prune.l1_unstructured(nn.Linear(6, 6), "weight", 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_changes(name: str) -> None:
    """Neither parameters and buffers nor torch's random numbers."""
    network = NETWORKS[name]()
    before, drawn = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    check_network(network, SPEC, "model=mine")
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())


MIXING = [nn.Softmax(0), Centred(), Standardised(), nn.BatchNorm1d(6, track_running_stats=False)]


def test_a_single_sample_mixes_with_no_other() -> None:
    assert not mixes_samples(classifier(Centred()), torch.rand(1, 2, 3))


@pytest.mark.parametrize("layer", MIXING)
def test_a_network_that_mixes_the_samples_of_a_batch(layer: nn.Module, caplog: pytest.LogCaptureFixture) -> None:
    check_network(classifier(nn.ReLU()), SPEC, "model=mine")
    assert not caplog.records
    check_network(classifier(layer), SPEC, "model=mine")
    assert "model=mine: its outputs for a sample depend on the other samples of the batch, also in" in caplog.text


def not_finite() -> nn.Module:
    layer = nn.Linear(6, 6)
    nn.init.constant_(layer.weight[2:3, 1:2], math.nan)
    return layer


class Scaling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)  # tanh needs its outputs in the backward pass


class Rounding(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.round().long()


class Averaging(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.mul_(0.9).add_(x.mean())
        return x - self.passes


class Growing(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.resize_(2)
        return x


MISTAKES = {
    "outputs": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), "gives 3 outputs per sample; .* 4 classes$"),
    "samples": (lambda: classifier(nn.Linear(5, 6)), r"rejects 2 samples of shape 2x3 in training \(RuntimeError: "),
    "a tuple": (lambda: nn.Sequential(nn.Flatten(0, 1), nn.LSTM(3, 4)), "gives a tuple of outputs; allowed: a tensor$"),
    "not finite": (lambda: classifier(not_finite()), r"its 1.weight has NaN or infinity at first; allowed: finite"),
    "no values": (lambda: classifier(nn.BatchNorm1d(6)).to("meta"), r"1.weight has no values \(device meta\); allowed"),
    "lazy": (lambda: classifier(nn.LazyLinear(6)), r"1.weight has no values \(a lazy layer before .*\); allowed: tens"),
    "buffer": (lambda: classifier(Replacing()), "replaces the buffer 1.mean; allowed: changes in place, such as self"),
    "size": (lambda: classifier(Growing()), "resizes the buffer 1.passes; allowed: buffers of a fixed size$"),
    "graph": (
        lambda: classifier(nn.Linear(6, 6), Averaging()),
        "adds values with a gradient to the buffer 2.passes; allowed: values without one, such as x.detach",
    ),
    "in place": (
        lambda: classifier(nn.Linear(6, 6), nn.Tanh(), Scaling()),
        r"rejects 2 samples of shape 2x3 in training \(RuntimeError: one of the variables needed for gradient comput",
    ),
    "no gradient": (
        lambda: nn.Sequential(classifier(), Rounding()),
        "its outputs have no gradient; allowed: differentiable functions of its parameters$",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    build, message = MISTAKES[name]
    with pytest.raises(InputError, match=f"^model=mine: .*{message}"):
        check_network(build(), SPEC, "model=mine")


def test_a_batch_of_one() -> None:
    """BatchNorm trains on two samples, but not on one."""
    network = classifier(nn.BatchNorm1d(6))
    check_network(network, SPEC, "model=mine")
    with pytest.raises(InputError, match=r"rejects one sample of .*; allowed: model.norm=group, or a local.batch_s"):
        check_network(network, SPEC, "model=mine", samples=1)


def normed(spec: Spec) -> nn.Sequential:
    encoder = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16))
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(16, spec.classes)))


@pytest.mark.parametrize(
    ("sizes", "batch_size", "trains"),
    [((8, 10), 4, True), ((8, 9), 4, False), ((2, 3), None, True), ((2, 1), None, False), ((3, 5), 1, False)],
)
def test_batch_norm_needs_two_samples_in_every_batch(
    make_experiment: MakeExperiment, sizes: tuple[int, ...], batch_size: int | None, trains: bool
) -> None:
    """A client with 9 samples in batches of 4 has a batch of one; 8 and 10 samples have none."""
    experiment = make_experiment(sizes=sizes, network=normed, local={"batch_size": batch_size})
    if trains:
        simulation = Simulation(experiment)
        simulation.advance(simulation.initial())
    else:
        with pytest.raises(
            InputError, match=r"BatchNorm cannot train on a batch of one .* or a local.batch_size with w"
        ):
            Simulation(experiment)
