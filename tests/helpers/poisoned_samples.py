"""Clients whose samples make local training diverge."""

from __future__ import annotations

import torch

from fedrun.data.datasets.base import Dataset, Scaled, Spec
from fedrun.experiment.experiment import Experiment


def poisoned(*clients: int) -> Dataset:
    """Four clients of 4, 8, 12 and 16 samples; the samples of those named are so large that training diverges."""
    draw = torch.Generator().manual_seed(5)
    inputs, targets = torch.rand(50, 1, 4, 4, generator=draw), torch.randint(0, 3, (50,), generator=draw)
    order, first = torch.arange(40) * 7 % 40, 0  # as GivenSizes deals
    for client, size in enumerate((4, 8, 12, 16)):
        if client in clients:
            inputs[order[first : first + size]] *= 1e25
        first += size
    return Dataset(Spec((1, 4, 4), 3), Scaled(1.0), inputs, targets, 40, None, ("a", "b", "c"), "poisoned")


def poisoned_experiment(make_experiment, *clients: int, **changes: object) -> Experiment:
    return make_experiment(sizes=(4, 8, 12, 16), dataset=poisoned(*clients), clients_per_round=4, **changes)
