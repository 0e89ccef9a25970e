"""FedAvg's server side (McMahan et al., 2017, arXiv 1602.05629)."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.strategies.server import CohortUpdate, Round, ServerState, WeightedServer
from fedrun.strategies.vectors import MODEL


@config_class
class FedAvg(WeightedServer):
    """The weighted mean of the clients' models.

    Attributes:
        weighting: ``samples``: p_k = n_k / Σ_S n_j, over the round's participants S; ``uniform``: p_k = 1 / |S|.
    """

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # x ← Σ_{k∈S} p_k y_k
        return ServerState(update.mean[MODEL], state.slots), {}
