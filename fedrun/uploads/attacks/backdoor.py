"""A backdoor with a pixel trigger (Gu et al., 2017, arXiv 1708.06733; Bagdasaryan et al., AISTATS 2020)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Scaled
from fedrun.data.federation import Federation
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator
from fedrun.uploads.attacks.base import Attack


@config_class
class Backdoor(Attack):
    """Attackers train on images with a bright square in the corner and the label that these are to get.

    The metric ``test/attack_success`` is the share of test images of other classes that get the label with the square.

    Attributes:
        label: that images with the trigger are to get.
        size: size of the square at the bottom right, in pixels a side.
        poisoned_share: share of each attacker's samples that it marks, in (0, 1]; at least one sample.
    """

    label: Annotated[int, Ge(0)]
    size: Annotated[int, Ge(1)]
    poisoned_share: Annotated[float, Gt(0), Le(1)]

    changes_data: ClassVar[bool] = True

    def poisoned(self, federation: Federation, seed: int) -> Federation:
        dataset = federation.dataset
        self._check(dataset)
        # Test images with the trigger are further samples, after all others.
        test = federation.test.samples
        others = test[dataset.targets[test] != self.label]
        triggered = torch.arange(len(dataset.targets), len(dataset.targets) + len(others))
        inputs = torch.cat([dataset.inputs, self._triggered(dataset, dataset.inputs[others])])
        targets = torch.cat([dataset.targets, dataset.targets.new_full((len(others),), self.label)])
        for client in sorted(federation.attackers):
            samples = federation.train[client]
            count = max(1, round(self.poisoned_share * len(samples)))
            drawn = samples[torch.randperm(len(samples), generator=generator(seed, "backdoor", client))[:count]]
            inputs[drawn] = self._triggered(dataset, inputs[drawn])
            targets[drawn] = self.label
        return replace(federation, dataset=replace(dataset, inputs=inputs, targets=targets), triggered=triggered)

    def _triggered(self, dataset: Dataset, images: torch.Tensor) -> torch.Tensor:
        """Copies of images ``[n, channels, height, width]`` with the square."""
        assert isinstance(dataset.encoding, Scaled)
        changed = images.clone()
        changed[..., -self.size :, -self.size :] = int(dataset.encoding.divisor)
        return changed

    def _check(self, dataset: Dataset) -> None:
        """Reject data without room for the trigger."""
        shape, stored = dataset.spec.input_shape, dataset.inputs.dtype
        if len(shape) != 3:
            raise InputError(
                f"attack=backdoor: the samples are {list(shape)}; allowed: images [channels, height, width], such as "
                "those of mnist or digits"
            )
        if not isinstance(dataset.encoding, Scaled) or stored != torch.uint8:
            raise InputError(
                f"attack=backdoor: the images are {str(stored).removeprefix('torch.')} with the encoding "
                f"{type(dataset.encoding).__name__}; allowed: uint8 with Scaled, whose brightest value is known"
            )
        if self.size > min(shape[1:]):
            raise InputError(
                f"attack.size={self.size}: the images are {shape[1]} x {shape[2]}; allowed: at most the smaller"
            )
        if self.label >= dataset.spec.classes:
            raise InputError(f"attack.label={self.label}: allowed: 0 to {dataset.spec.classes - 1}")
