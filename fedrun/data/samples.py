"""A dataset on its device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.data.datasets.augmentation import Augmentation
from fedrun.data.datasets.base import Dataset, Encoding
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.classification import CLASSIFICATION


@dataclass(frozen=True)
class Samples:
    """A dataset's samples on the training device. Batches are gathered in their compact type and encoded on the device.

    Attributes:
        inputs: ``[n, ...]`` in the dataset's compact type, such as uint8, on the CPU (possibly memory-mapped) or on
            the device.
        targets: ``[n, ...]``, on the same device as ``inputs``; of a classification int64 ``[n]``.
        encoding: turns a compact batch into network inputs.
        device: the network's device.
        augmentation: how compact training inputs are changed at random, or None.
        task: what is learned.
        classes: of a classification, the number of classes.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    encoding: Encoding
    device: torch.device
    augmentation: Augmentation | None = None
    task: Task = CLASSIFICATION
    classes: int = 0

    @classmethod
    def of(cls, dataset: Dataset, device: torch.device) -> Samples:
        """A dataset's samples, moved to the device unless it is the CPU."""
        inputs, targets = dataset.inputs.to(device), dataset.targets.to(device)
        spec = dataset.spec
        return cls(inputs, targets, dataset.encoding, device, dataset.augmentation, spec.task, spec.classes)

    def gather(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compact inputs ``[*indices.shape, ...]`` and targets ``[*indices.shape, ...]``, for indices of any shape."""
        flat = indices.flatten().to(self.inputs.device, non_blocking=True)  # the host need not wait for its own copy
        inputs, targets = (
            tensor.index_select(0, flat).view(*indices.shape, *tensor.shape[1:]).to(self.device)
            for tensor in (self.inputs, self.targets)
        )
        return inputs, targets
