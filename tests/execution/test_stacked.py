"""Many small networks at once, against each of them alone."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from fedrun.execution import vectorized
from fedrun.execution.stacked import StackedPerceptron
from fedrun.models.flat_network import FlatNetwork
from fedrun.simulation.simulation import Simulation

from ..conftest import first_executor
from ..helpers.small_networks import logistic


def deep():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4, bias=False), nn.ReLU())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(4, 3)))


def shallow():
    return nn.Sequential(OrderedDict(encoder=nn.Flatten(), head=nn.Linear(6, 3, bias=False)))


def on_rows():
    """The first layer reads each of a sample's rows."""
    encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False), nn.Flatten())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(4, 3)))


def nothing_dropped(x, probability):
    raise AssertionError("there is no dropout")


@pytest.mark.parametrize("network", [deep, shallow, on_rows])
def test_logits_gradients_and_steps_are_those_of_each_alone(network):
    torch.manual_seed(0)
    flat = FlatNetwork(network())
    models, x, y = torch.randn(4, flat.layout.size), torch.randn(4, 5, 2, 3), torch.randint(0, 3, (4, 5))
    stacked = StackedPerceptron.of(flat.network)
    logits, passed = stacked.forward(flat.layout.views(models), x, nothing_dropped)
    loss = sum(nn.functional.cross_entropy(logits[k], y[k]) for k in range(4))
    gradient, moved = torch.full_like(models, float("nan")), models.clone()
    stacked.gradient(loss, passed, flat.layout.views(gradient))
    logits, passed = stacked.forward(flat.layout.views(moved), x, nothing_dropped)
    loss = sum(nn.functional.cross_entropy(logits[k], y[k]) for k in range(4))
    stacked.descend(loss, passed, flat.layout.views(moved), 0.5)
    for k in range(4):
        flat.load(models[k])
        alone = flat.network(x[k])
        torch.testing.assert_close(logits[k], alone, rtol=1e-5, atol=1e-6)
        expected = flat.backward(nn.functional.cross_entropy(alone, y[k]))
        torch.testing.assert_close(gradient[k], expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(moved[k], models[k] - 0.5 * expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layer",
    [nn.Conv1d(1, 1, 1), nn.LayerNorm(6), nn.Flatten(0), nn.Dropout1d(0.1)],
    ids=lambda layer: type(layer).__name__,
)
def test_other_layers_are_left_to_vmap(layer):
    assert StackedPerceptron.of(nn.Sequential(layer, nn.Linear(6, 3))) is None


def test_a_layer_that_is_used_twice():
    """An activation is part of the chain each time; a linear layer, whose gradient would be a sum, is left to vmap."""
    torch.manual_seed(0)
    relu, linear = nn.ReLU(), nn.Linear(6, 6)
    network = nn.Sequential(nn.Linear(6, 6), relu, nn.Linear(6, 3), relu)
    stacked, x = StackedPerceptron.of(network), torch.randn(1, 5, 6)
    assert stacked is not None
    tensors = {name: tensor[None] for name, tensor in network.named_parameters()}
    torch.testing.assert_close(stacked.forward(tensors, x, nothing_dropped)[0][0], network(x[0]))
    assert StackedPerceptron.of(nn.Sequential(linear, relu, linear)) is None
    tied = nn.Linear(6, 6)
    tied.weight = linear.weight
    assert StackedPerceptron.of(nn.Sequential(linear, relu, tied)) is None


def test_what_changes_activations_in_place_is_left_to_vmap():
    assert StackedPerceptron.of(nn.Sequential(nn.Linear(6, 6), nn.LeakyReLU(inplace=True), nn.Linear(6, 3))) is None
    assert StackedPerceptron.of(nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))) is not None


def test_a_layer_with_hooks_is_left_to_vmap():
    pruned = prune.l1_unstructured(nn.Linear(6, 6), "weight", 2)
    assert StackedPerceptron.of(nn.Sequential(pruned, nn.Linear(6, 3))) is None


def test_hooks_of_gradients_are_left_to_vmap():
    def network(hook):
        layer = nn.Linear(6, 6)
        handle = hook(layer)
        return nn.Sequential(layer, nn.Linear(6, 3)), handle

    for hook in (
        lambda layer: layer.register_full_backward_hook(lambda module, inputs, outputs: None),
        lambda layer: layer.register_full_backward_pre_hook(lambda module, outputs: None),
        lambda layer: layer.weight.register_hook(lambda gradient: None),
    ):
        hooked, handle = network(hook)
        assert StackedPerceptron.of(hooked) is None
        handle.remove()
        assert StackedPerceptron.of(hooked) is not None


@pytest.mark.parametrize(("room", "together"), [(2**30, 128), (8 * 4 * 51 * 3, 3), (1, 1)])
def test_groups_are_as_large_as_memory_allows(make_experiment, monkeypatch, room, together):
    """A model of 51 numbers (16 x 3 weights, 3 biases): eight vectors of it are 1 632 bytes."""
    monkeypatch.setattr(vectorized, "CPU_BYTES", room)
    simulation = Simulation(make_experiment(network=logistic, hardware={"executor": "vectorized"}))
    assert first_executor(simulation).group_size() == together
