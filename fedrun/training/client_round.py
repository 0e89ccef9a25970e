"""A client's local training in one round: what it trains on, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedrun.data.samples import Samples
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.client_contract import checked_frozen
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.vectors import Vectors
from fedrun.training.optimizer_step import fresh_state


@dataclass(frozen=True)
class ClientRound:
    """What a client trains on in one round, and how.

    Attributes:
        network: holds the model to start from; afterwards the trained model.
        strategy: the client strategy, whose hooks change plain SGD.
        local: hyper-parameters.
        samples: the dataset.
        indices: the client's sample numbers, int64 ``[n_k]``.
        rate: η_t.
        constants: the result of :meth:`ClientStrategy.constants`.
        optimizer: its state ``[S]`` to begin with, updated in place; None: a new state.
        augment: changes the compact inputs ``[n, ...]`` that are gathered together, of one epoch or step after another;
            None: no augmentation.
    """

    network: FlatNetwork
    strategy: ClientStrategy
    local: LocalTraining
    samples: Samples
    indices: torch.Tensor
    rate: float
    constants: Vectors
    optimizer: torch.Tensor | None = None
    augment: Callable[[torch.Tensor], torch.Tensor] | None = None

    def gather(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compact inputs, augmented, and targets of some samples (int64 ``[n]``), ``[n, ...]`` each."""
        inputs, targets = self.samples.gather(indices)
        return (inputs if self.augment is None else self.augment(inputs)), targets

    def optimizer_state(self) -> torch.Tensor | None:
        """The optimizer's state before the first step, ``[S]``; None: it has none."""
        return fresh_state(self.network.weights, self.local) if self.optimizer is None else self.optimizer

    def frozen(self, epoch: int) -> torch.Tensor | None:
        """The parameters that do not move in an epoch, bool ``[T]`` on the device; None: all move."""
        mask = checked_frozen(self.strategy, self.network.layout, epoch)
        return None if mask is None else mask.to(self.network.vector.device)
