from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedrun.config.build import option
from fedrun.data.datasets.base import Spec
from fedrun.models.flat_network import layout_of
from fedrun.models.lora import LoRA
from fedrun.system.errors import InputError

pytestmark = pytest.mark.needs("timm")


def build(spec: Spec, **changes: Any) -> torch.nn.Sequential:
    return replace(option("model", "timm"), **changes).build(spec)


@pytest.mark.parametrize(("name", "embedding"), [("resnet10t", 512), ("vit_tiny_patch16_224", 192)])
def test_it_is_timms_network(name: str, embedding: int) -> None:
    import timm

    spec = Spec((1, 224, 224), 5) if name.startswith("vit") else Spec((1, 64, 64), 5)
    torch.manual_seed(0)
    network = build(spec, name=name).eval()
    torch.manual_seed(0)
    expected = timm.create_model(name, num_classes=5, in_chans=1).eval()
    images = torch.rand(2, *spec.input_shape)
    with torch.no_grad():
        assert torch.equal(network(images), expected(images))
    layout = layout_of(network)
    assert layout.trainable == sum(parameter.numel() for parameter in expected.parameters())
    assert (layout.classes, layout.embedding) == (5, embedding)


def test_group_norm_replaces_timms_batch_norm() -> None:
    network = build(Spec((3, 32, 32), 10), name="resnet10t", norm="group")
    kinds = {type(module) for module in network.modules()}
    assert torch.nn.GroupNorm in kinds
    assert not any(issubclass(kind, torch.nn.BatchNorm2d) for kind in kinds)
    layout = layout_of(network)
    assert layout.size == layout.trainable  # no running statistics
    network.train()(torch.rand(1, 3, 32, 32)).sum().backward()


@pytest.mark.parametrize(
    ("spec", "changes", "message"),
    [
        (
            Spec((3, 64, 64), 5),
            {"name": "resnet81"},
            r"^model.name=resnet81: no model of timm; allowed: such as resnet18",
        ),
        (
            Spec((3, 64, 64), 5),
            {"name": "resnet10t.nope", "pretrained": True},
            r"^model.name=resnet10t.nope: resnet10t has no such weights in timm; .* resnet10t.c3_in1k",
        ),
        (Spec((3, 64, 64), 5), {"name": "resnet10t", "head": "layer9"}, r"^model.head=layer9: .* allowed: fc$"),
        (Spec((3, 64, 64), 5), {"name": "vit_tiny_patch16_224"}, r"^model=timm model.name=vit_tiny_patch16_224: "),
    ],
)
def test_what_is_rejected(spec: Spec, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        build(spec, **changes)
    assert "\n" not in str(error.value)


def test_texts_are_rejected() -> None:
    with pytest.raises(InputError, match=r"^model=timm "):
        option("model", "timm").check(Spec((80,), 80, vocabulary=80))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"^model=timm: timm is not installed; pip install 'fedrun\[timm\]'$"):
        build(Spec((3, 64, 64), 5), name="resnet18")


def test_activations_inside_of_timms_batch_norm_stay() -> None:
    def activations(norm: str) -> int:
        network = build(Spec((3, 64, 64), 10), name="efficientnet_b0", norm=norm)
        return sum(isinstance(module, torch.nn.SiLU) for module in network.modules())

    assert activations("group") == activations("batch") > 40


def test_adapters_around_outputs_that_would_not_be_trained() -> None:
    """Two heads compute the outputs of a distilled network, so that none of them alone does; both are new."""
    message = (
        r"^model.lora.rank=2: model=timm model.name=deit_tiny_dis.* has no linear layer that alone computes the out"
    )
    lora = LoRA(rank=2, alpha=4.0, targets=("qkv",), dropout=0.0)
    with pytest.raises(InputError, match=message):
        build(Spec((3, 224, 224), 5), name="deit_tiny_distilled_patch16_224", lora=lora)
