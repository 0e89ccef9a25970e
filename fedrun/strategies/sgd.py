"""The plain client half: local SGD, as in FedAvg (McMahan et al., 2017)."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from fedrun.config.config_class import STRICT
from fedrun.strategies.client import ClientHalf


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SGD(ClientHalf):
    """Minimise the local loss F_k by SGD from the broadcast model, and send the result."""
