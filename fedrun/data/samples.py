"""A dataset on its device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.data.datasets.augmentation import Augmentation
from fedrun.data.datasets.base import Dataset, Encoding


@dataclass(frozen=True)
class Samples:
    """A dataset's samples on the training device. Batches are gathered in their compact type and encoded on the device.

    Attributes:
        inputs: ``[n, ...]`` in the dataset's compact type, uint8 or float32, on the CPU (possibly memory-mapped) or on
            the device.
        targets: int64 ``[n]``, on the same device as ``inputs``.
        encoding: turns a compact batch into network inputs.
        device: the network's device.
        augmentation: how compact training inputs are changed at random, or None.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    encoding: Encoding
    device: torch.device
    augmentation: Augmentation | None = None

    @classmethod
    def of(cls, dataset: Dataset, device: torch.device) -> Samples:
        """A dataset's samples, moved to the device unless it is the CPU."""
        if device.type == "cpu":
            return cls(dataset.inputs, dataset.targets, dataset.encoding, device, dataset.augmentation)
        inputs, targets = dataset.inputs.to(device), dataset.targets.to(device)
        return cls(inputs, targets, dataset.encoding, device, dataset.augmentation)

    def gather(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compact inputs ``[*indices.shape, ...]`` and targets ``[*indices.shape]``, for indices of any shape."""
        flat = indices.flatten().to(self.inputs.device)
        inputs, targets = self.inputs.index_select(0, flat), self.targets.index_select(0, flat)
        return inputs.view(*indices.shape, *inputs.shape[1:]).to(self.device), targets.view(indices.shape).to(
            self.device
        )
