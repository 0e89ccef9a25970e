"""The plain client half: local SGD, as in FedAvg (McMahan et al., 2017)."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy


@config_class
class SGD(ClientStrategy):
    """Minimise the local loss F_k by SGD from the broadcast model, and send the result."""
