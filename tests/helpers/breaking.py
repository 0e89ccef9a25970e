"""A server half of one's own with a defect."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from fedrun.config.config_class import STRICT
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import CohortUpdate, Round, ServerState


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Breaking(FedAvg):
    """FedAvg, but that it divides by zero."""

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        raise ZeroDivisionError("in the middle of a round")
