"""Random images of a published dataset's shape, for measurements that need no data."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedrun.config.composed import compose
from fedrun.data.datasets.base import Dataset, Scaled, Spec
from fedrun.experiment.experiment import build_experiment
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
    """Local training without anything beyond SGD: what ``conf/config.yaml`` has."""
    local = build_experiment(compose(["~hparams"])).local
    return replace(local, lr=lr, batch_size=batch_size, epochs=epochs)
