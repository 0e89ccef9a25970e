"""torchvision's image classifiers by name."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.config.suggestions import did_you_mean
from fedrun.data.datasets.base import Spec
from fedrun.models.adapted import Norm, adapted
from fedrun.models.base import ModelConfig, require_image
from fedrun.system.errors import InputError


@config_class
class TorchvisionModel(ModelConfig):
    """A classifier of ``torchvision.models`` with random weights.

    For images of other than three channels, the first convolution is replaced by one of as many; it starts from
    Kaiming's normal initialisation (fan-out).

    Attributes:
        name: as in ``torchvision.models.list_models()``, such as ``mobilenet_v3_small``.
        head: the linear layer that computes the logits, such as ``classifier.3``; None: the last linear layer.
        norm: ``batch``: the model's own layers. ``group``: GroupNorm with two groups in the place of each BatchNorm.
    """

    name: str
    head: str | None
    norm: Norm

    def check(self, spec: Spec) -> None:
        require_image("torchvision", spec, least_side=1)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        import torchvision

        names = torchvision.models.list_models(module=torchvision.models)
        if self.name not in names:
            raise InputError(
                f"model.name={self.name}: no classifier of torchvision.models; allowed: such as resnet18"
                f"{did_you_mean(self.name, names)}"
            )
        network = torchvision.models.get_model(self.name, weights=None, num_classes=spec.classes)
        if spec.input_shape[0] != 3:
            _read_channels(network, spec.input_shape[0])
        return adapted(network, spec, f"model=torchvision model.name={self.name}", self.head, self.norm)


def _read_channels(network: torch.nn.Module, channels: int) -> None:
    """Replace the first convolution by one that reads this many channels, in place."""
    for name, layer in network.named_modules():
        if isinstance(layer, torch.nn.Conv2d):
            first = torch.nn.Conv2d(
                channels,
                layer.out_channels,
                layer.kernel_size,  # type: ignore[arg-type]  # a pair, which is typed as a tuple of any length
                stride=layer.stride,  # type: ignore[arg-type]
                padding=layer.padding,  # type: ignore[arg-type]
                bias=layer.bias is not None,
            )
            torch.nn.init.kaiming_normal_(first.weight, mode="fan_out", nonlinearity="relu")
            network.set_submodule(name, first)
            return
