"""The adapters in a model's vector, for the rules for federated low-rank adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.config.option_name import chosen
from fedrun.models.flat_network import Layout
from fedrun.models.lora_layout import Adapter, adapters_of, add_residuals
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import CohortUpdate, Rows, ServerState
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError

HOLDERS = "lora/holders"
"""In the server's state: the clients that took part in the last round, int64: they hold R, and download only its
change."""

SAVED = "lora/saved"
"""In the server's state: the numbers that such a client saves by downloading the change instead of R, int64 ``[1]``."""


@config_class
class ResidualServer(FedAvg):
    """The base of rules that change the frozen weights W0 by a residual R: a layer computes with W0 + s (R + B A).

    R is part of the model's vector. Its change in a round has a low rank q. A client that took part in the round before
    has R, and downloads the change as two factors, q (in + out) numbers, or as a matrix if that has fewer numbers.
    Other clients download R. Before the first change all clients know that R = 0.
    """

    rows: ClassVar[Rows] = "parameters"

    def prepare(self, network: torch.nn.Module) -> None:
        add_residuals(network)

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        required_adapters(layout, chosen("strategy/server", self))
        return ServerState(model, _slots(torch.arange(clients), layout.size - layout.uploaded))

    def next_state(self, model: torch.Tensor, update: CohortUpdate, ranks: Mapping[Adapter, int]) -> ServerState:
        """The state after a round, with the costs of the next download.

        Args:
            model: the model with the changed residuals.
            update: the cohort's update.
            ranks: q for each adapter.
        """
        saved = 0
        for adapter, rank in ranks.items():
            outputs, inputs = adapter.b.shape[0], adapter.a.shape[1]
            saved += max(0, outputs * inputs - rank * (outputs + inputs))
        cohort = torch.tensor([*update.clients.tolist(), *update.excluded], dtype=torch.int64)
        return ServerState(model, _slots(cohort, saved))

    def unsent(self, state: ServerState, clients: torch.Tensor) -> torch.Tensor:
        return torch.isin(clients, state.slots[HOLDERS].cpu()) * state.slots[SAVED].cpu()


def _slots(holders: torch.Tensor, saved: int) -> Vectors:
    """The server's record of the next download's costs."""
    return {HOLDERS: holders, SAVED: torch.tensor([saved])}


def required_adapters(layout: Layout, key: str) -> tuple[Adapter, ...]:
    """The adapters of the model.

    Args:
        layout: layout of the model's vector.
        key: the strategy, for the message.

    Raises:
        InputError: it has none, or their A is frozen.
    """
    if adapters := adapters_of(layout):
        return adapters
    if any(".lora_B." in slot.name for slot in layout.slots):
        raise InputError(
            f"{key}: A is frozen and common to all clients (strategy/server=ffalora); allowed: a server strategy that "
            "trains it, such as fedavg or fedit"
        )
    raise without_adapters(key)


def without_adapters(key: str) -> InputError:
    """The message for a model without adapters."""
    return InputError(
        f"{key}: the model has no low-rank adapters; allowed: model.lora.rank, such as 8, with model=transformers, "
        "timm, torchvision or custom"
    )
