"""The base of attacks: clients that misbehave."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.data.federation import Federation
from fedrun.system.errors import InputError
from fedrun.system.randomness import chosen_seed, numpy_generator


@config_class
class Attack:
    """A share of the clients of the pool misbehaves throughout the run; the base class has only honest hooks.

    Attributes:
        share: share of attackers among the clients, in [0, 1]; their number is rounded to the nearest whole one.
        seed: seed of the choice of attackers; None for the run's seed.
    """

    share: Annotated[float, Ge(0), Le(1), Neutral(0.0)]
    seed: Annotated[Annotated[int, Ge(0)] | None, Neutral(None)]

    def attackers(self, clients: int, seed: int) -> np.ndarray:
        """The attackers among ``clients`` clients, drawn uniformly without replacement: ascending int64.

        Raises:
            InputError: the share is positive but too small for one attacker.
        """
        count = round(self.share * clients)
        if self.share and not count:
            raise InputError(
                f"attack.share={self.share:g}: at most half of one of {clients} clients; allowed: 0, or "
                f"{1 / clients:g} for one"
            )
        draw = numpy_generator(chosen_seed(self.seed, seed), "attackers")
        return np.sort(draw.choice(clients, count, replace=False))

    @property
    def changes_data(self) -> bool:
        """Whether attackers train on other data than their own."""
        return False

    @property
    def needs_classes(self) -> bool:
        """Whether attackers change labels."""
        return self.changes_data

    def poisoned(self, federation: Federation, seed: int) -> Federation:
        """The federation with what the attackers train on.

        Raises:
            InputError: the attack does not fit the data.
        """
        return federation

    def tampered(self, model: torch.Tensor, broadcast: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """The model that an attacker sends instead of its trained one.

        Args:
            model: the parameters after honest training, ``[T]``.
            broadcast: those that the server sent to it, ``[T]``.
            generator: generator for random choices, on the CPU.
        """
        return model

    def reported(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss that an attacker reports instead of its own at the received model."""
        return loss
