"""All data in one place: what federated learning is measured against."""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from fedrun.config.config_class import STRICT
from fedrun.strategies.client import ClientHalf


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Centralized(ClientHalf):
    """One model trained by SGD on the training samples of all clients together; its momentum survives the rounds.

    A round is ``local.epochs`` passes over the pooled data (or ``local.steps`` steps). ``clients_per_round`` plays no
    role.
    """

    pools: ClassVar[bool] = True
    keeps_momentum: ClassVar[bool] = True
    communicates: ClassVar[bool] = False
