"""A round of a model that is nothing but its head: what a server step costs beyond averaging."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.models.flat_network import Layout
from fedrun.strategies.server import CohortUpdate, Round
from fedrun.strategies.vectors import MODEL


@dataclass(frozen=True)
class Case:
    """What a server strategy is given.

    Attributes:
        start: the model before the round, ``[P]``.
        update: of a cohort whose models are the start with noise.
        round: the first of 200.
    """

    start: torch.Tensor
    update: CohortUpdate
    round: Round


def head_only(classes: int, dimensions: int, clients: int) -> Case:
    """A case with a linear head of this size, and a bias."""
    torch.manual_seed(0)
    size = classes * (dimensions + 1)
    layout = Layout((), size, size, slice(0, size), classes, dimensions)
    head = torch.nn.Linear(dimensions, classes)
    start = torch.cat([head.weight.flatten(), head.bias]).detach()
    uploads = start + 0.02 * torch.randn(clients, size)
    samples = torch.randint(100, 350, (clients,))
    update = CohortUpdate(
        clients=torch.arange(clients),
        samples=samples,
        steps=torch.ones(clients, dtype=torch.int64),
        mean={MODEL: (samples.float() / samples.sum()) @ uploads},
        weights=samples.double(),
        rows=uploads,
        excluded=(),
        loss=0.0,
        score=0.0,
    )
    return Case(start, update, Round(0, 200, clients, layout, 0, 0.1))
