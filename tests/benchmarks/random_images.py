"""Random images of a published dataset's shape, for measurements that need no data."""

from __future__ import annotations

import torch

from fedrun.data.datasets.base import Dataset, Scaled, Spec
from fedrun.strategies.local_training import LocalTraining

FEMNIST = Spec((1, 28, 28), 62)


def random_images(count: int, spec: Spec = FEMNIST, train_size: int | None = None) -> Dataset:
    """Images and labels drawn uniformly; all of them are training samples unless said otherwise."""
    random = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (count, *spec.input_shape), dtype=torch.uint8, generator=random)
    targets = torch.randint(0, spec.classes, (count,), generator=random)
    names = tuple(map(str, range(spec.classes)))
    return Dataset(spec, Scaled(255.0), inputs, targets, train_size or count, None, names, "random")


def plain_sgd(lr: float, batch_size: int, epochs: int = 1) -> LocalTraining:
    """Local training without anything beyond SGD."""
    return LocalTraining(
        lr=lr,
        lr_decay=1.0,
        lr_decay_rounds=1,
        lr_warmup_rounds=0,
        lr_cosine_rounds=None,
        optimizer="sgd",
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        momentum=0.0,
        weight_decay=0.0,
        batch_size=batch_size,
        epochs=epochs,
        steps=None,
        max_gradient_norm=None,
        precision="float32",
        repair_nonfinite=False,
    )
