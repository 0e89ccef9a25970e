"""The multi-layer perceptrons and logistic regression."""

import pytest
import torch
from torch import nn

from fedrun.config.config_class import ArgumentError
from fedrun.data.datasets.base import Spec
from fedrun.models.flat_network import layout_of
from fedrun.models.logistic import Logistic
from fedrun.models.mlp import MLP, FeddcEmnistFCN, MaxflMLP, MaxflSent140MLP, Mnist2NN
from fedrun.system.errors import InputError

from .conftest import count

MNIST = Spec((1, 28, 28), 10)


def test_mnist_2nn_equals_the_papers_layers(same_network):
    def layers():
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
        )

    assert count(Mnist2NN(hidden=(200, 200)).build(MNIST)) == 199_210
    assert count(FeddcEmnistFCN(hidden=(100, 100)).build(MNIST)) == 89_610
    same_network(lambda: Mnist2NN(hidden=(200, 200)).build(MNIST), layers, torch.rand(3, 1, 28, 28))


def test_mlp_equals_its_layer_table(same_network):
    def layers():
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))

    spec = Spec((3, 2, 2), 3)
    same_network(lambda: MLP(hidden=(5, 4), dropout=0.0).build(spec), layers, torch.rand(6, 3, 2, 2))
    layout = layout_of(MLP(hidden=(5, 4), dropout=0.0).build(spec))
    assert (layout.size, layout.classes, layout.embedding) == (65 + 24 + 15, 3, 4)


def test_recovered_maxfl_widths():
    assert count(MaxflMLP(hidden=(64, 30), dropout=0.5).build(MNIST)) == 52_500
    assert count(MaxflMLP(hidden=(64, 30), dropout=0.5).build(Spec((1, 28, 28), 62))) == 54_112
    assert count(MaxflSent140MLP(hidden=(128, 86, 30)).build(Spec((200,), 2))) == 39_494


def test_maxfl_drops_units_of_the_first_hidden_layer_only():
    network = MaxflMLP(hidden=(64, 30), dropout=0.5).build(MNIST)
    names = [type(module).__name__ for module in network.get_submodule("encoder")]
    assert names == ["Flatten", "Linear", "ReLU", "Dropout", "Linear", "ReLU"]
    assert network.get_submodule("encoder")[3].p == 0.5


def test_dropout_follows_each_relu_and_acts_in_training_only():
    network = MLP(hidden=(50, 40), dropout=0.5).build(Spec((8,), 2))
    names = [type(module).__name__ for module in network.get_submodule("encoder")]
    assert names == ["Flatten", "Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout"]
    inputs = torch.rand(4, 8)
    assert not torch.equal(network(inputs), network(inputs))
    network.eval()
    assert torch.equal(network(inputs), network(inputs))


def test_logistic():
    assert count(Logistic(zero_init=False).build(Spec((30,), 5))) == 155
    assert count(Logistic(zero_init=False).build(Spec((60,), 10))) == 610
    zero = Logistic(zero_init=True).build(Spec((2, 3), 4))
    assert torch.equal(zero(torch.rand(7, 2, 3)), torch.zeros(7, 4))
    assert list(zero.get_submodule("encoder").parameters()) == []


def test_logistic_starts_from_pytorchs_default(same_network):
    spec = Spec((2, 3), 4)
    same_network(
        lambda: Logistic(zero_init=False).build(spec),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4)),
        torch.rand(7, 2, 3),
    )


def test_texts_are_refused():
    text = Spec((80,), 80, 80)
    with pytest.raises(InputError, match="model=mlp reads numbers of any shape, .* samples are 80 symbols$"):
        MLP(hidden=(5,), dropout=0.0).check(text)
    with pytest.raises(InputError, match="model=logistic reads numbers of any shape, .* samples are 80 symbols$"):
        Logistic(zero_init=False).check(text)
    with pytest.raises(InputError, match="model=mnist_2nn reads inputs of shape 1x28x28, .* samples are 1x8x8$"):
        Mnist2NN(hidden=(200, 200)).check(Spec((1, 8, 8), 10))
    with pytest.raises(InputError, match="model=feddc_emnist_fcn reads inputs of shape 1x28x28, .* samples are 1x8x8$"):
        FeddcEmnistFCN(hidden=(100, 100)).check(Spec((1, 8, 8), 10))
    with pytest.raises(InputError, match="model=maxfl_mlp reads inputs of shape 1x28x28, .* samples are 80 symbols$"):
        MaxflMLP(hidden=(64, 30), dropout=0.5).check(text)
    with pytest.raises(InputError, match="model=maxfl_sent140_mlp reads inputs of shape 200, .* are 200 symbols$"):
        MaxflSent140MLP(hidden=(128, 86, 30)).check(Spec((200,), 2, 80))


def test_widths_must_be_positive_integers():
    for wrong in ((0,), (1.0,), ("5",), 5, (True,)):
        with pytest.raises(ArgumentError):
            MLP(hidden=wrong, dropout=0.0)
    with pytest.raises(ArgumentError):
        Mnist2NN(hidden=(200,))
    with pytest.raises(ArgumentError):
        MLP(hidden=(5,), dropout=1.0)
