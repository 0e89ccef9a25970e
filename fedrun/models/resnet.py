"""Residual networks (He et al., 2016) for small images."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_image

GROUPS = 2


@config_class
class ResNet(ModelConfig):
    """torchvision's ResNet-18 or ResNet-50, by default with the first layer that suits small images.

    With 10 classes, 3 channels and the 3x3 first layer: 11 173 962 parameters and 9 600 float buffers (depth 18),
    23 520 842 and 53 120 (depth 50). Convolutions start from Kaiming's normal initialisation (fan-out).

    Attributes:
        depth: 18 (two convolutions a block, d = 512) or 50 (bottleneck blocks, d = 2048).
        stem: the first layer. ``3x3``: stride 1, no pooling (CIFAR; FedConcat's ResNet-50). ``7x7``: stride 2, then
            max-pooling (ImageNet).
        norm: ``batch``: BatchNorm; ``group``: GroupNorm with 2 groups, which has no buffers (FedDC's repository, with
            the 7x7 stem).
    """

    depth: Literal[18, 50]
    stem: Literal["3x3", "7x7"]
    norm: Literal["batch", "group"]

    def check(self, spec: Spec) -> None:
        # A batch may be one sample, of which BatchNorm's training needs more than the one pixel that strides may leave.
        strides = 8 if self.stem == "3x3" else 32
        require_image(f"resnet{self.depth}_cifar", spec, least_side=strides + 1 if self.norm == "batch" else 1)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        from torchvision.models import resnet

        block, layers = {18: (resnet.BasicBlock, [2, 2, 2, 2]), 50: (resnet.Bottleneck, [3, 4, 6, 3])}[self.depth]
        whole = resnet.ResNet(
            block, layers, num_classes=spec.classes, norm_layer=group_norm if self.norm == "group" else None
        )
        children: OrderedDict[str, torch.nn.Module] = OrderedDict(whole.named_children())
        head = children.pop("fc")
        assert isinstance(head, torch.nn.Linear)
        channels = spec.input_shape[0]
        if self.stem == "3x3":
            children["conv1"] = first_layer(channels, kernel=3, stride=1)
            del children["maxpool"]
        elif channels != 3:
            children["conv1"] = first_layer(channels, kernel=7, stride=2)
        children["flatten"] = torch.nn.Flatten()
        return encoder_and_head(torch.nn.Sequential(children), head)


def group_norm(channels: int) -> torch.nn.Module:
    """Normalisation of each sample over two groups of channels, with a scale and a shift per channel."""
    return torch.nn.GroupNorm(GROUPS, channels)


def first_layer(channels: int, kernel: int, stride: int) -> torch.nn.Conv2d:
    """A convolution to 64 channels, initialised as torchvision does the one it takes the place of."""
    layer = torch.nn.Conv2d(channels, 64, kernel, stride=stride, padding=kernel // 2, bias=False)
    torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
