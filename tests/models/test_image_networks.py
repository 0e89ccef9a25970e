"""The convolutional networks of LEAF, McMahan et al., NIID-Bench and FedDC."""

import pytest
import torch
from torch import nn

from fedrun.data.datasets.base import Spec
from fedrun.models.flat_network import layout_of
from fedrun.models.leaf_celeba_cnn import LeafCelebaCNN
from fedrun.models.lenet import FeddcCifarCNN, NiidSimpleCNN
from fedrun.models.mnist_cnn import LeafFemnistCNN, MnistCNN
from fedrun.models.niid_vgg9 import NiidVGG9
from fedrun.system.errors import InputError

from .conftest import count

FEMNIST = Spec((1, 28, 28), 62)
MNIST = Spec((1, 28, 28), 10)
CELEBA = Spec((3, 84, 84), 2)
CIFAR10 = Spec((3, 32, 32), 10)


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


def lenet(first, second, features, *hidden):
    """LeNet's plan for three channels and ten classes, ReLU before pooling."""
    widths = (features, *hidden)
    return nn.Sequential(
        nn.Conv2d(3, first, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(first, second, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(widths[0], widths[1]), nn.ReLU(), nn.Linear(widths[1], widths[2]), nn.ReLU(),
        nn.Linear(widths[2], 10),
    )  # fmt: skip


def test_niid_simple_cnn_and_feddc_cifar_cnn_have_the_papers_parameters():
    simple, feddc = NiidSimpleCNN(encoders=1, projection=None), FeddcCifarCNN()
    assert count(simple.build(CIFAR10)) == 62_006
    assert count(simple.build(MNIST)) == 44_426
    assert count(feddc.build(CIFAR10)) == 797_962
    assert count(feddc.build(Spec((3, 32, 32), 100))) == 815_332
    layout = layout_of(simple.build(CIFAR10))
    assert (layout.embedding, layout.head.stop - layout.head.start) == (84, 850)


def test_they_equal_their_layer_tables(same_network):
    images = torch.rand(2, 3, 32, 32)
    simple = NiidSimpleCNN(encoders=1, projection=None)
    same_network(lambda: simple.build(CIFAR10), lambda: lenet(6, 16, 400, 120, 84), images)
    same_network(lambda: FeddcCifarCNN().build(CIFAR10), lambda: lenet(64, 64, 1600, 384, 192), images)


def test_parallel_encoders_are_networks_of_their_own_below_one_head():
    config = NiidSimpleCNN(encoders=5, projection=None)
    layout = layout_of(config.build(CIFAR10))
    assert layout.trainable == layout.size == 5 * 61_156 + 4_210 == 309_990
    assert layout.embedding == 5 * 84
    torch.manual_seed(0)
    network = NiidSimpleCNN(encoders=2, projection=None).build(CIFAR10)
    torch.manual_seed(0)
    first, second = (lenet(6, 16, 400, 120, 84)[:-1] for _ in range(2))
    images = torch.rand(3, 3, 32, 32)
    # The layers of the first encoder are drawn before the second's; lenet() also draws a head, so compare the first.
    embeddings = network.get_submodule("encoder")(images)
    assert embeddings.shape == (3, 168)
    assert torch.equal(embeddings[:, :84], first(images))
    second.load_state_dict(
        dict(zip(second.state_dict(), list(network.get_submodule("encoder").state_dict().values())[8:], strict=True))
    )
    assert torch.equal(embeddings[:, 84:], second(images))


def test_moons_projection_head_is_part_of_the_encoder():
    """84 to 84, ReLU, 84 to 256, below a head of 256 to 10."""
    config = NiidSimpleCNN(encoders=1, projection=256)
    assert count(config.build(CIFAR10)) == 61_156 + (84 * 84 + 84) + (84 * 256 + 256) + (256 * 10 + 10)
    assert layout_of(config.build(CIFAR10)).embedding == 256

    def layers() -> nn.Sequential:
        encoder = lenet(6, 16, 400, 120, 84)[:-1]
        projection = (nn.Linear(84, 84), nn.ReLU(), nn.Linear(84, 256))
        return nn.Sequential(*encoder, *projection, nn.Linear(256, 10))

    network, plain = config.build(CIFAR10), layers()
    plain.load_state_dict(dict(zip(plain.state_dict(), network.state_dict().values(), strict=True)))
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(network(images), plain(images))


def test_niid_vgg9_equals_its_layer_table(same_network):
    def layers():
        modules, channels = [], 3
        for width, pooled in ((32, False), (64, True), (128, False), (128, True), (256, False), (256, True)):
            modules += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()] + [nn.MaxPool2d(2)] * pooled
            channels = width
        linear = [nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
        return nn.Sequential(*modules, nn.Flatten(), *linear)

    network = NiidVGG9().build(CIFAR10)
    assert count(network) == 3_491_530
    assert layout_of(network).embedding == 512
    assert count(NiidVGG9().build(MNIST)) == 3_491_530 - 576 - (4096 - 9 * 256) * 512
    same_network(lambda: NiidVGG9().build(CIFAR10), layers, torch.rand(2, 3, 32, 32))


def test_niid_vgg9_drops_where_the_code_does():
    encoder = NiidVGG9().build(CIFAR10).get_submodule("encoder")
    names = [type(module).__name__ for module in encoder]
    assert names[10:12] == ["Dropout2d", "Conv2d"]
    assert names[-7:] == ["Flatten", "Dropout", "Linear", "ReLU", "Linear", "ReLU", "Dropout"]
    assert [module.p for module in encoder if isinstance(module, (nn.Dropout, nn.Dropout2d))] == [0.05, 0.1, 0.1]


@pytest.mark.parametrize(
    ("config", "least"), [(NiidSimpleCNN(encoders=1, projection=None), 16), (FeddcCifarCNN(), 16), (NiidVGG9(), 8)]
)
def test_the_smallest_images_work_and_smaller_ones_are_refused(config, least):
    smallest = Spec((2, least, least), 3)
    config.check(smallest)
    assert config.build(smallest)(torch.rand(2, 2, least, least)).shape == (2, 3)
    shape = f"2x{least}x{least - 1}"
    limit = f"{least}x{least} pixels, channels first"
    with pytest.raises(InputError, match=f"reads images of at least {limit}, .* samples are {shape}$"):
        config.check(Spec((2, least, least - 1), 3))
    for other, found in ((Spec((200,), 2), "200"), (Spec((80,), 80, 80), "80 symbols")):
        with pytest.raises(InputError, match=f"but the dataset's samples are {found}$"):
            config.check(other)


@pytest.mark.parametrize(
    ("config", "name", "wanted"),
    [
        (LeafFemnistCNN(embedding_dim=8), "leaf_femnist_cnn", "1x28x28"),
        (MnistCNN(embedding_dim=8), "mnist_cnn", "1x28x28"),
        (LeafCelebaCNN(), "leaf_celeba_cnn", "3x84x84"),
    ],
)
def test_other_shapes_are_refused(config, name, wanted):
    with pytest.raises(InputError, match=f"model={name} reads inputs of shape {wanted}, .* samples are 3x32x32$"):
        config.check(Spec((3, 32, 32), 10))
    with pytest.raises(InputError, match="samples are 80 symbols$"):
        config.check(Spec((80,), 80, 80))
