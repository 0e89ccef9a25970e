from collections import OrderedDict

import pytest
import torch

from fedrun.data.datasets.base import Spec
from fedrun.models.flat_network import FlatNetwork, layout_of
from fedrun.models.resnet import ResNet
from fedrun.system.errors import InputError


def sizes(depth, classes, stem="3x3", norm="batch"):
    layout = layout_of(ResNet(depth=depth, stem=stem, norm=norm).build(Spec((3, 32, 32), classes)))
    return layout.trainable, layout.size - layout.trainable, layout.embedding


def test_they_have_the_papers_parameters_and_buffers():
    assert sizes(18, 10) == (11_173_962, 9_600, 512)
    assert sizes(18, 100) == (11_220_132, 9_600, 512)
    assert sizes(18, 10, stem="7x7") == (11_181_642, 9_600, 512)
    assert sizes(18, 10, stem="7x7", norm="group") == (11_181_642, 0, 512)
    assert sizes(50, 10) == (23_520_842, 53_120, 2048)
    assert sizes(50, 100) == (23_705_252, 53_120, 2048)
    assert sizes(50, 200) == (23_910_152, 53_120, 2048)


@torch.no_grad()
def test_with_the_7x7_stem_it_is_torchvisions():
    from torchvision.models import resnet

    torch.manual_seed(0)
    network = ResNet(depth=18, stem="7x7", norm="batch").build(Spec((3, 64, 64), 5)).eval()
    torch.manual_seed(0)
    expected = resnet.resnet18(num_classes=5).eval()
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(network(images), expected(images))
    renamed = OrderedDict((key.removeprefix("encoder."), value) for key, value in network.state_dict().items())
    assert all(torch.equal(renamed[key.replace("fc.", "head.")], value) for key, value in expected.state_dict().items())


@torch.no_grad()
def test_with_the_3x3_stem_the_first_layer_keeps_every_pixel():
    from torchvision.models import resnet

    network = ResNet(depth=18, stem="3x3", norm="group").build(Spec((1, 28, 28), 5)).eval()
    encoder = network.get_submodule("encoder")
    assert encoder.conv1(torch.rand(2, 1, 28, 28)).shape == (2, 64, 28, 28)
    expected = resnet.resnet18(num_classes=5, norm_layer=lambda channels: torch.nn.GroupNorm(2, channels)).eval()
    weights = {key.removeprefix("encoder."): value for key, value in network.state_dict().items()}
    weights = {key.replace("head.", "fc."): value for key, value in weights.items()}
    expected.conv1, expected.maxpool = torch.nn.Conv2d(1, 64, 3, padding=1, bias=False), torch.nn.Identity()
    expected.load_state_dict(weights)
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(network(images), expected(images))


def test_the_new_first_layer_has_kaimings_spread():
    torch.manual_seed(0)
    weight = (
        ResNet(depth=18, stem="3x3", norm="batch").build(Spec((3, 32, 32), 10)).get_submodule("encoder").conv1.weight
    )
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)  # fan-out: 64 channels of 3x3


def test_as_one_vector_a_single_small_sample_trains():
    spec = Spec((3, 9, 9), 4)
    config = ResNet(depth=18, stem="3x3", norm="batch")
    config.check(spec)
    flat = FlatNetwork(config.build(spec))
    gradient = flat.backward(flat.network.train()(torch.rand(1, 3, 9, 9)).square().sum())
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("config", "least"),
    [
        (ResNet(depth=50, stem="3x3", norm="batch"), 9),
        (ResNet(depth=18, stem="7x7", norm="batch"), 33),
        (ResNet(depth=18, stem="7x7", norm="group"), 1),
    ],
)
def test_too_small_images_are_refused(config, least):
    config.check(Spec((3, least, least), 10))
    message = f"model=resnet{config.depth}_cifar reads images of at least {least}x{least} pixels, channels first"
    with pytest.raises(InputError, match=message):
        config.check(Spec((3, least - 1, least), 10))
    with pytest.raises(InputError, match=message):
        config.check(Spec((200,), 10))
