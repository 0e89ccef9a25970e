"""timm's image classifiers by name."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from fedrun.config.config_class import config_class
from fedrun.config.suggestions import did_you_mean
from fedrun.data.datasets.base import Spec
from fedrun.models.adapted import AdaptedModel, Norm, replace_batch_norm
from fedrun.models.base import require_image
from fedrun.system.errors import InputError
from fedrun.system.extras import require_package
from fedrun.system.hub import hub_advice, hub_or_cache


@config_class
class TimmModel(AdaptedModel):
    """A classifier of timm (PyTorch Image Models), which adapts its first layer and its head to the dataset.

    Attributes:
        name: as in ``timm.list_models()``, such as ``vit_tiny_patch16_224``; with weights also ``resnet18.a1_in1k``.
        norm: ``batch``: the model's own layers. ``group``: GroupNorm with two groups instead of each BatchNorm.
        pretrained: whether it starts from weights of the Hugging Face hub instead of random ones.
    """

    name: str
    norm: Norm
    pretrained: bool

    @property
    def key(self) -> str:
        return f"model=timm model.name={self.name}"

    def check(self, spec: Spec) -> None:
        require_image("timm", spec, least_side=1)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        require_package("timm", "timm", "model=timm")
        import timm

        architecture = self.name.partition(".")[0]
        if not timm.is_model(architecture):
            raise InputError(
                f"model.name={self.name}: no model of timm; allowed: such as resnet18"
                f"{did_you_mean(architecture, timm.list_models())}"
            )
        weights = timm.list_models(f"{architecture}.*", pretrained=True)
        if "." in self.name and self.name not in weights:
            raise InputError(
                f"model.name={self.name}: {architecture} has no such weights in timm; allowed: "
                f"{', '.join([architecture, *weights])}"
            )
        try:
            with hub_or_cache() if self.pretrained else nullcontext():
                network = timm.create_model(
                    self.name, pretrained=self.pretrained, num_classes=spec.classes, in_chans=spec.input_shape[0]
                )
        except (OSError, RuntimeError) as error:
            if not self.pretrained:
                raise InputError(f"{self.key}: {error}; allowed: a model for the dataset's images") from None
            repository = str(timm.models.get_pretrained_cfg(self.name).hf_hub_id)
            raise InputError(f"model.pretrained=true: {hub_advice(repository, error)}") from None
        if self.norm == "group":
            replace_batch_norm(network)
        return self.adapt(network, spec)
