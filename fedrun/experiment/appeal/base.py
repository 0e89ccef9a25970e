"""Global model appeal: a client prefers the global model if its loss is below the client's own threshold ρ_k.

MaxFL: Cho, Jhunjhunwala, Li, Smith, Joshi, TMLR 2024, arXiv 2205.14840.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.data.federation import ClientIndices
from fedrun.strategies.local_training import LocalTraining

Convention = Literal["auto", "test", "train", "mixed"]
"""Which losses are compared in GM-Appeal: the clients' ``test`` losses on both sides, their ``train`` losses, or
(``mixed``) the global model's test loss with the threshold of the training loss; ``auto``: ``test`` where clients have
test samples of their own, otherwise ``train``."""


@dataclass(frozen=True)
class OwnResults:
    """Results of a model, or of each client's own, on the client's samples: float64 ``[clients]``, NaN for a client
    without samples.

    Attributes:
        train_loss: F_k, mean loss over its training samples.
        test_loss: f_k, mean loss over its test samples.
        test_score: mean of the task's score over its test samples; of a classification the accuracy.
    """

    train_loss: torch.Tensor
    test_loss: torch.Tensor
    test_score: torch.Tensor


@dataclass(frozen=True)
class Thresholds:
    """Every client's ρ_k, float64 ``[clients]``.

    Attributes:
        train: to compare training losses with.
        test: to compare test losses with, under the evaluation's convention.
        solo_accuracy: test accuracy of the model that a client uses instead of a global one that does not appeal to it;
            None where there is no such model.
    """

    train: torch.Tensor
    test: torch.Tensor
    solo_accuracy: torch.Tensor | None


Solo = Callable[[LocalTraining], OwnResults]
"""Trains a model for every client alone, from the initial model, and evaluates it."""


@config_class
class Appeal:
    """No thresholds, and so no appeal; the options with thresholds extend this class.

    Attributes:
        known: whether there are thresholds.
        trained: whether clients train for their thresholds, so that they are cached for other runs.
    """

    known: ClassVar[bool] = False
    trained: ClassVar[bool] = False

    @property
    def needs_classes(self) -> bool:
        """Whether clients compare accuracies."""
        return self.known

    @property
    def losses(self) -> Convention:
        """Which losses are compared."""
        return "auto"

    def fingerprint(self) -> str:
        """A hash of the file that thresholds are read from; empty if they follow from the configuration.

        Raises:
            InputError: the file cannot be read.
        """
        return ""

    def thresholds(self, clients: ClientIndices, local: LocalTraining, solo: Solo) -> Thresholds:
        """The thresholds of some clients.

        Args:
            clients: the clients and their training samples.
            local: how clients train in the federation.
            solo: trains a model for each client and evaluates it, where thresholds follow from such models.

        Raises:
            InputError: the thresholds cannot be read or computed.
        """
        raise NotImplementedError


@config_class
class WithThresholds(Appeal):
    """The base of options that give each client a threshold.

    Attributes:
        convention: see :data:`Convention`.
    """

    known: ClassVar[bool] = True

    convention: Convention

    @property
    def losses(self) -> Convention:
        return self.convention
