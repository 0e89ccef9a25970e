import copy
from dataclasses import replace

import pytest
import torch
import torchvision

from fedrun.config.build import option
from fedrun.data.datasets.base import Spec
from fedrun.models.adapted import adapted
from fedrun.models.flat_network import layout_of
from fedrun.system.errors import InputError


def build(spec, **changes):
    return replace(option("model", "torchvision"), **changes).build(spec)


def test_it_is_torchvisions_network():
    torch.manual_seed(0)
    network = build(Spec((3, 64, 64), 5), name="mobilenet_v3_small").eval()
    torch.manual_seed(0)
    expected = torchvision.models.mobilenet_v3_small(num_classes=5).eval()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(network(images), expected(images))
    layout = layout_of(network)
    assert layout.trainable == sum(parameter.numel() for parameter in expected.parameters())
    assert (layout.classes, layout.embedding) == (5, 1024)


def test_with_group_norm_grey_images_of_28_pixels_train():
    network = build(Spec((1, 28, 28), 10), name="mobilenet_v3_small", norm="group")
    layers = {type(module) for module in network.modules()}
    assert torch.nn.GroupNorm in layers and torch.nn.BatchNorm2d not in layers
    layout = layout_of(network)
    assert layout.size == layout.trainable  # no running statistics
    network.train()(torch.rand(1, 1, 28, 28)).sum().backward()
    first = next(module for module in network.modules() if isinstance(module, torch.nn.Conv2d))
    assert first.weight.shape == (16, 1, 3, 3) and first.stride == (2, 2)


def test_a_batch_norm_that_sees_one_value_is_refused():
    with pytest.raises(
        InputError, match=r"^model=torchvision model.name=resnet18: rejects one sample of shape 3x28x28"
    ):
        build(Spec((3, 28, 28), 10))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "resnet81"}, r"^model.name=resnet81: no classifier of torchvision.models"),
        ({"head": "layer9"}, r"^model.head=layer9: .* has no such linear layer; allowed: fc$"),
        ({"name": "squeezenet1_0"}, r"^model.head=null: .* allowed: none, as it has no linear layer$"),
        (
            {"name": "mobilenet_v3_small", "head": "classifier.0"},
            r"its outputs are not those of model.head=classifier.0",
        ),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        build(Spec((3, 64, 64), 10), **changes)


def test_the_network_is_the_same_split():
    whole = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    expected, batch = copy.deepcopy(whole), torch.rand(5, 2, 2)
    split = adapted(whole, Spec((2, 2), 2), "model=mine", None, "batch")
    assert torch.equal(split(batch), expected(batch))
    assert split.get_submodule("encoder")(batch).shape == (5, 3)
    with pytest.raises(InputError, match=r"^model=mine: gives 2 logits per sample; allowed: the dataset's 3 classes"):
        adapted(expected, Spec((2, 2), 3), "model=mine", None, "batch")
