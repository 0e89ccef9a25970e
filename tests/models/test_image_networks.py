"""The convolutional networks of LEAF and McMahan et al."""

import pytest
import torch
from torch import nn

from fedrun.datasets.base import Spec
from fedrun.errors import InputError
from fedrun.models.leaf_celeba_cnn import LeafCelebaCNN
from fedrun.models.leaf_femnist_cnn import LeafFemnistCNN
from fedrun.models.mnist_cnn import MnistCNN
from fedrun.parameters import count, layout_of

FEMNIST = Spec((1, 28, 28), 62)
MNIST = Spec((1, 28, 28), 10)
CELEBA = Spec((3, 84, 84), 2)


def papers_layers(hidden, classes):
    """ReLU before pooling, as the papers have it."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, hidden), nn.ReLU(), nn.Linear(hidden, classes),
    )  # fmt: skip


def test_leaf_femnist_cnn_has_the_papers_parameters():
    network = LeafFemnistCNN(embedding_dim=2048).build(FEMNIST)
    sizes = [parameter.numel() for parameter in network.parameters()]
    assert [sum(sizes[i : i + 2]) for i in range(0, 8, 2)] == [832, 51_264, 6_424_576, 127_038]
    assert count(network) == layout_of(network).size == 6_603_710
    layout = layout_of(LeafFemnistCNN(embedding_dim=16).build(FEMNIST))
    assert (layout.classes, layout.embedding, layout.head.stop - layout.head.start) == (62, 16, 62 * 17)


def test_mnist_cnn_has_the_papers_parameters():
    assert count(MnistCNN(embedding_dim=512).build(MNIST)) == 1_663_370


def test_networks_equal_the_papers_layer_by_layer(same_network):
    images = torch.rand(3, 1, 28, 28)
    same_network(lambda: LeafFemnistCNN(embedding_dim=16).build(FEMNIST), lambda: papers_layers(16, 62), images)
    same_network(lambda: MnistCNN(embedding_dim=32).build(MNIST), lambda: papers_layers(32, 10), images)


def test_pooling_before_relu_gives_the_same_gradients():
    images, labels = torch.rand(4, 1, 28, 28), torch.arange(4)
    gradients = []
    for build in (lambda: MnistCNN(embedding_dim=8).build(MNIST), lambda: papers_layers(8, 10)):
        torch.manual_seed(1)
        network = build()
        loss = nn.functional.cross_entropy(network(images), labels)
        gradients.append(torch.autograd.grad(loss, list(network.parameters())))
    assert all(torch.equal(own, other) for own, other in zip(*gradients, strict=True))


def test_leaf_celeba_cnn_has_the_papers_parameters_and_buffers():
    network = LeafCelebaCNN().build(CELEBA)
    sizes = [parameter.numel() for parameter in network.parameters()]
    assert [sum(sizes[i : i + 2]) for i in range(0, len(sizes), 2)] == [896, 64, 9248, 64, 9248, 64, 9248, 64, 1602]
    layout = layout_of(network)
    assert (layout.trainable, layout.size) == (30_498, 30_498 + 256)
    assert network(torch.rand(2, 3, 84, 84)).shape == (2, 2)
    assert network.get_submodule("encoder")(torch.rand(2, 3, 84, 84)).shape == (2, 800)


def test_leaf_celeba_cnn_equals_its_layer_table(same_network):
    def layers():
        modules = []
        for channels in (3, 32, 32, 32):
            modules += [nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.MaxPool2d(2), nn.ReLU()]
        return nn.Sequential(*modules, nn.Flatten(), nn.Linear(800, 2))

    same_network(lambda: LeafCelebaCNN().build(CELEBA), layers, torch.rand(2, 3, 84, 84))


@pytest.mark.parametrize(
    ("recipe", "name", "wanted"),
    [
        (LeafFemnistCNN(embedding_dim=8), "leaf_femnist_cnn", "1x28x28"),
        (MnistCNN(embedding_dim=8), "mnist_cnn", "1x28x28"),
        (LeafCelebaCNN(), "leaf_celeba_cnn", "3x84x84"),
    ],
)
def test_other_shapes_are_refused(recipe, name, wanted):
    with pytest.raises(InputError, match=f"model={name} reads inputs of shape {wanted}, .* samples are 3x32x32$"):
        recipe.check(Spec((3, 32, 32), 10))
    with pytest.raises(InputError, match="samples are 80 symbols$"):
        recipe.check(Spec((80,), 80, 80))
