"""FedDisco: weights by the discrepancy of label distributions (Ye et al., ICML 2023, arXiv 2305.19229)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.models.flat_network import Layout
from fedrun.strategies.server import CohortUpdate, Requirement, Round, Senders, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError

Metric = Literal["kl", "l2"]


@config_class
class FedDisco(ServerStrategy):
    """The mean of the clients' models with weights w_k ∝ max(p_k − a d_k + b, 0), p_k = n_k / Σ_S n_j.

    S is the whole cohort, including clients whose upload is not finite and not used. d_k is the discrepancy between the
    client's label distribution q_k and the target distribution u. Every client sends its numbers of samples per class
    once. This discloses information about its data; the costs include it. If all weights of a cohort are 0, they are
    p_k (the published code fails). Float buffers are averaged with the same weights.

    Attributes:
        discrepancy_weight: a ≥ 0.
        offset: b ≥ 0, which moves all weights towards equal ones; a = b = 0: FedAvg.
        metric: of the discrepancy: ``kl``: KL(q_k ‖ u), divided by its sum over the participants; ``l2``: ‖q_k − u‖.
        target: u, positive numbers in proportion to it, one per class, such as a skewed test set's samples per class;
            None: the uniform distribution.
    """

    discrepancy_weight: Annotated[float, Ge(0)]
    offset: Annotated[float, Ge(0)]
    metric: Metric
    target: Annotated[tuple[Annotated[float, Gt(0)], ...] | None, Neutral(None)]

    wants: ClassVar[frozenset[Requirement]] = frozenset({"label_counts"})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        if layout.classes:  # not known of a model without a head
            self._check_target(layout.classes)
        return ServerState(model)

    def _check_target(self, classes: int) -> None:
        if self.target is not None and len(self.target) != classes:
            raise InputError(
                f"strategy.server.target: {len(self.target)} numbers; allowed: one for each of {classes} classes"
            )

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        assert senders.label_counts is not None
        self._check_target(senders.label_counts.shape[1])
        sizes = senders.samples.double() / senders.samples.sum().clamp_min(1)
        distances = discrepancies(senders.label_counts, self.metric, self.target)
        # w_k = max(p_k − a d_k + b, 0)
        weights = sizes - self.discrepancy_weight * distances + self.offset
        weights = weights.clamp_min(0)
        return weights if weights.any() else sizes

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # x ← Σ_S w_k y_k / Σ_S w_j
        left_out = float((update.weights == 0).sum())
        return ServerState(update.mean[MODEL], state.slots), {"weightless": left_out}


def discrepancies(label_counts: torch.Tensor, metric: Metric, target: Sequence[float] | None) -> torch.Tensor:
    """d_k of every client of a cohort from its samples per class (``[C, classes]``), float64 ``[C]``."""
    shares = label_counts.double()
    shares = shares / shares.sum(1, keepdim=True).clamp_min(1)
    common = shares.new_ones(shares.shape[1]) if target is None else shares.new_tensor(target)
    common = common / common.sum()
    if metric == "l2":
        # d_k = ‖q_k − u‖
        distance: torch.Tensor = torch.linalg.vector_norm(shares - common, dim=1)
        return distance
    # d_k = Σ_c q_kc ln(q_kc / u_c), then d_k / Σ_S d_j
    divergence: torch.Tensor = torch.special.xlogy(shares, shares / common).sum(1)
    total = divergence.sum()
    return divergence / total if total > 0 else divergence
