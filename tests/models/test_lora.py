"""Low-rank adapters: what they compute, what is trained, and where a server's part of the weights lies."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.data.datasets.base import Spec
from fedrun.models.base import encoder_and_head
from fedrun.models.flat_network import FlatNetwork, layout_of
from fedrun.models.lora import LoRA
from fedrun.models.lora_layout import adapters_of, add_residuals, merged
from fedrun.system.errors import InputError

pytestmark = pytest.mark.needs("peft")

SETTING = LoRA(rank=2, alpha=6.0, targets=("0", "2"), dropout=0.0)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


def test_an_adapted_layer_computes_with_w0_plus_s_b_a(network):
    plain, batch = copy.deepcopy(network), torch.rand(7, 4)
    SETTING.insert(network)
    assert torch.equal(network(batch), plain(batch))  # B = 0: bit for bit
    layer = network[0]
    assert layer.lora_A["default"].weight.abs().max() <= 1 / 4**0.5
    with torch.no_grad():
        layer.lora_B["default"].weight.copy_(torch.rand(5, 2))
    delta = 3 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight  # s = alpha / rank
    hidden = torch.tanh(torch.nn.functional.linear(batch, plain[0].weight + delta, plain[0].bias))
    torch.testing.assert_close(network(batch), plain[2](hidden))
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert trained == {f"{k}.lora_{matrix}.default.weight" for k in (0, 2) for matrix in "AB"}


def test_residuals_lie_behind_the_trained_entries_and_are_merged(network):
    plain, batch = copy.deepcopy(network), torch.rand(7, 4)
    SETTING.insert(network)
    add_residuals(network)
    flat = FlatNetwork(encoder_and_head(network, torch.nn.Identity()))
    first, second = adapters_of(flat.layout)
    assert (flat.layout.trainable, flat.layout.size) == (2 * (4 + 5) + 2 * (5 + 3), 34 + 20 + 15)
    assert torch.equal(flat.network(batch), plain(batch))
    model = flat.vector.clone()
    first.residual.view(model).copy_(torch.rand(5, 4))
    first.b.view(model).copy_(torch.rand(5, 2))
    flat.load(model)
    delta = 3 * (first.residual.view(model) + first.product(model))
    hidden = torch.tanh(torch.nn.functional.linear(batch, plain[0].weight + delta, plain[0].bias))
    with torch.no_grad():
        torch.testing.assert_close(flat.network(batch), plain[2](hidden))
    whole = merged(flat.network, flat.tensors(model))
    assert not any("residual" in name for name in whole)
    expected = plain[0].weight + 3 * first.residual.view(model)
    torch.testing.assert_close(whole["encoder.0.base_layer.weight"], expected)
    assert torch.equal(flat.frozen["encoder.0.base_layer.weight"], plain[0].weight)  # shared with other models
    assert second.residual.stop == flat.layout.size


def test_a_vision_model_with_adapters_trains_them_and_its_head():
    lora = LoRA(rank=2, alpha=16.0, targets=("classifier.0",), dropout=0.0)
    model = replace(option("model", "torchvision"), name="mobilenet_v3_small", norm="group", lora=lora)
    layout = layout_of(model.build(Spec((3, 32, 32), 10)))
    names = [slot.name for slot in layout.slots if slot.stop <= layout.trainable]
    assert [name.rpartition("classifier.0.")[2] for name in names] == [
        "lora_A.default.weight", "lora_B.default.weight", "head.weight", "head.bias",
    ]  # fmt: skip
    assert layout.trainable == 2 * (576 + 1024) + 1024 * 10 + 10


class Gated(torch.nn.Module):
    """Its outputs are those of a convolution; it has a linear layer before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(1, 4, 3)
        self.gate = torch.nn.Linear(4, 4)
        self.outputs = torch.nn.Conv2d(4, 3, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.first(images)
        gate = torch.sigmoid(self.gate(hidden.mean((2, 3))))
        return self.outputs(hidden * gate[:, :, None, None]).mean((2, 3))


def test_outputs_that_are_new_must_be_trained_whatever_else_is_frozen():
    lora = LoRA(rank=2, alpha=4.0, targets=("gate",), dropout=0.0)
    model = replace(option("model", "torchvision"), freeze=("first.*",), lora=lora)
    with pytest.raises(InputError, match=r"^model.lora.rank=2: .* has no linear layer that alone computes the outputs"):
        model.adapt(Gated(), Spec((1, 4, 4), 3))


def test_a_last_layer_that_is_frozen_on_purpose():
    lora = LoRA(rank=2, alpha=4.0, targets=("0",), dropout=0.0)
    model = replace(option("model", "torchvision"), freeze=("2.*",), lora=lora)
    network = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    layout = layout_of(model.adapt(network, Spec((4,), 3)))
    assert (layout.trainable, layout.head_size) == (2 * (4 + 5), 0)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (("7",), r"^model.lora.targets=\[7\]: 7 is not found; allowed: linear layers, .* such as 0, 2$"),
        (("0", "7"), r"^model.lora.targets=\[0,7\]: 7 is not found; allowed: linear layers, .* such as 0, 2$"),
        (
            (),
            r"^model.lora.targets=\[\]: peft has no choice for this architecture; allowed: linear layers, or how their "
            r"names end, such as 0, 2$",
        ),
        (("1",), r"^model.lora.targets=\[1\]: 1 is a Tanh; allowed: linear layers, .*, such as 0, 2$"),
    ],
)
def test_what_is_refused(network, targets, message):
    with pytest.raises(InputError, match=message):
        replace(SETTING, targets=targets).insert(network)


def test_only_linear_layers_are_adapted():
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    with pytest.raises(InputError, match=r"^model.lora.targets=\[0\]: 0 is a Conv2d; allowed: linear .*, such as 2"):
        replace(SETTING, targets=("0",)).insert(network)


def test_layers_whose_adapters_would_have_no_effect():
    attention = torch.nn.TransformerEncoderLayer(8, 2, 16)  # its attention reads the weight of out_proj itself
    with pytest.raises(
        InputError, match=r": self_attn.out_proj is a NonDynamic.*; allowed: .* such as linear1, linear2$"
    ):
        replace(SETTING, targets=("out_proj",)).insert(attention)
    headless = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Identity())
    with pytest.raises(
        InputError, match=r": 1 is the head, which is trained without adapters, or an identity; allowed"
    ):
        replace(SETTING, targets=("1",)).insert(headless)
