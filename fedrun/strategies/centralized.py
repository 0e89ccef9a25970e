"""All data in one place: what federated learning is measured against."""

from __future__ import annotations

from typing import ClassVar

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy


@config_class
class Centralized(ClientStrategy):
    """One model trained by SGD on the training samples of all clients together; its momentum survives the rounds.

    A round is ``local.epochs`` passes over the pooled data (or ``local.steps`` steps). ``clients_per_round`` plays no
    role.
    """

    pools: ClassVar[bool] = True
    keeps_momentum: ClassVar[bool] = True
    communicates: ClassVar[bool] = False
