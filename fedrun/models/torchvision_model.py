"""torchvision's image classifiers by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.config.suggestions import did_you_mean
from fedrun.data.datasets.base import Spec
from fedrun.models.adapted import AdaptedModel, Norm, replace_batch_norm
from fedrun.models.base import require_image
from fedrun.system.errors import InputError


@config_class
class TorchvisionModel(AdaptedModel):
    """A classifier of ``torchvision.models``.

    For images of other than three channels, the first convolution is replaced by one of as many; it starts from
    Kaiming's normal initialisation (fan-out).

    Attributes:
        name: as in ``torchvision.models.list_models()``, such as ``mobilenet_v3_small``.
        norm: ``batch``: the model's own layers. ``group``: GroupNorm with two groups instead of each BatchNorm.
        pretrained: whether it starts from torchvision's weights for ImageNet, with a new head, instead of random ones.
    """

    name: str
    norm: Norm
    pretrained: Annotated[bool, Neutral(False)]

    @property
    def key(self) -> str:
        return f"model=torchvision model.name={self.name}"

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
        if self.pretrained:
            network = self._with_weights(spec.classes)
        else:
            network = torchvision.models.get_model(self.name, weights=None, num_classes=spec.classes)
        if spec.input_shape[0] != 3:
            _read_channels(network, spec.input_shape[0])
        if self.norm == "group":
            replace_batch_norm(network)
        return self.adapt(network, spec)

    def _with_weights(self, classes: int) -> torch.nn.Module:
        """The model with torchvision's newest weights, and a new layer in the place of its head."""
        import torchvision

        weights = torchvision.models.get_model_weights(self.name).DEFAULT
        try:
            network: torch.nn.Module = torchvision.models.get_model(self.name, weights=weights)
        except OSError as error:  # also what urllib raises
            file = Path(torch.hub.get_dir(), "checkpoints", Path(weights.url).name)
            raise InputError(
                f"model.pretrained=true: {weights.url} cannot be fetched ({error}); download it elsewhere and save it "
                f"as {file}"
            ) from None
        linear = [name for name, module in network.named_modules() if type(module) is torch.nn.Linear]
        name = self.head or (linear[-1] if linear else "")
        if name not in linear:
            raise InputError(
                f"model.pretrained=true: {self.key} has no linear layer {name} to replace by one of {classes} classes; "
                f"allowed as model.head: {', '.join(linear) or 'none, as it has no linear layer'}"
            )
        inputs = network.get_submodule(name).in_features
        assert isinstance(inputs, int)
        network.set_submodule(name, torch.nn.Linear(inputs, classes))
        return network


def _read_channels(network: torch.nn.Module, channels: int) -> None:
    """Replace the first convolution by one that reads this many channels, in place."""
    for name, layer in network.named_modules():
        if isinstance(layer, torch.nn.Conv2d):
            first = torch.nn.Conv2d(
                channels,
                layer.out_channels,
                layer.kernel_size,  # type: ignore[arg-type]  # a pair, which is typed as a tuple of any length
                stride=layer.stride,  # type: ignore[arg-type]  # likewise
                padding=layer.padding,  # type: ignore[arg-type]  # likewise
                bias=layer.bias is not None,
            )
            torch.nn.init.kaiming_normal_(first.weight, mode="fan_out", nonlinearity="relu")
            network.set_submodule(name, first)
            return
