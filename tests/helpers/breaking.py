"""A server strategy of one's own with a defect."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import CohortUpdate, Round, ServerState


@config_class
class Breaking(FedAvg):
    """FedAvg, but that it divides by zero."""

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        raise ZeroDivisionError("in the middle of a round")
