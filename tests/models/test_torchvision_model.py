import re
from dataclasses import replace
from urllib.error import URLError

import pytest
import torch

from fedrun.config.build import option
from fedrun.data.datasets.base import Spec
from fedrun.models.flat_network import layout_of
from fedrun.system.errors import InputError


def build(spec, **changes):
    return replace(option("model", "torchvision"), **changes).build(spec)


def test_it_is_torchvisions_network():
    import torchvision

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
    """The first layer's 144 weights have the standard deviation √(2 / (16 · 3 · 3)), by PyTorch's own rule 0.19."""
    torch.manual_seed(0)
    network = build(Spec((1, 28, 28), 10), name="mobilenet_v3_small", norm="group")
    layers = {type(module) for module in network.modules()}
    assert torch.nn.GroupNorm in layers and torch.nn.BatchNorm2d not in layers
    layout = layout_of(network)
    assert layout.size == layout.trainable  # no running statistics
    network.train()(torch.rand(1, 1, 28, 28)).sum().backward()
    first = next(module for module in network.modules() if isinstance(module, torch.nn.Conv2d))
    assert first.weight.shape == (16, 1, 3, 3) and first.stride == (2, 2)
    assert first.weight.std().item() == pytest.approx((2 / 144) ** 0.5, rel=0.25)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "resnet81"}, r"^model.name=resnet81: no classifier of torchvision.models"),
        ({"head": "layer9"}, r"^model.head=layer9: .* has no such linear layer; allowed: fc$"),
        ({"name": "squeezenet1_0", "head": "classifier"}, r"^model.head=classifier: .* allowed: none, as it has no "),
        (
            {"freeze": ("layer9.*",)},
            r"^model.freeze: no parameter of .*=resnet18 matches 'layer9",
        ),
        (
            {"name": "mobilenet_v3_small", "head": "classifier.0"},
            r"its outputs are not those of model.head=classifier.0",
        ),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        build(Spec((3, 64, 64), 10), **changes)


def test_a_model_without_a_linear_layer_has_no_head():
    network = build(Spec((3, 64, 64), 5), name="squeezenet1_0")
    layout = layout_of(network)
    assert (layout.head_size, layout.classes) == (0, 0)
    assert network.eval()(torch.rand(2, 3, 64, 64)).shape == (2, 5)


def test_what_matches_a_pattern_is_frozen():
    network = build(Spec((3, 64, 64), 5), freeze=("layer1.*", "conv1.weight"))
    frozen = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    assert "encoder.conv1.weight" in frozen and "encoder.layer1.1.bn2.bias" in frozen
    assert all(name == "encoder.conv1.weight" or name.startswith("encoder.layer1.") for name in frozen)


def weights_file(name, folder):
    """Weights of a torchvision model where torchvision looks for them, written without the internet."""
    import torchvision

    torch.manual_seed(3)
    network = torchvision.models.get_model(name)
    url = torchvision.models.get_model_weights(name).DEFAULT.url
    (folder / "checkpoints").mkdir(exist_ok=True)
    torch.save(network.state_dict(), folder / "checkpoints" / url.rpartition("/")[2])
    return network


def test_pretrained_weights_get_a_new_head(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    monkeypatch.setattr(torch.hub, "HASH_REGEX", re.compile("(no hash is in these files' names)"))
    whole = weights_file("mobilenet_v3_small", tmp_path)
    network = build(Spec((3, 64, 64), 5), name="mobilenet_v3_small", pretrained=True)
    assert torch.equal(network.get_parameter("encoder.features.0.0.weight"), whole.features[0][0].weight)
    assert network.get_parameter("head.weight").shape == (5, 1024)


def test_pretrained_weights_that_cannot_be_fetched(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    monkeypatch.setattr(torch.hub, "urlopen", offline)
    with pytest.raises(InputError, match=rf"^model.pretrained=true: https.* cannot be .* save it as {tmp_path}/.*pth$"):
        build(Spec((3, 64, 64), 5), name="mobilenet_v3_small", pretrained=True)
