"""FedSoft: clients belong to all clusters to some extent (Ruan, Joe-Wong, AAAI 2022, arXiv 2112.06053)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.strategies.clustering.base import Assignment, ClusteringRound, SeveralModels
from fedrun.strategies.clustering.context import TrainingContext
from fedrun.strategies.vectors import CENTRES
from fedrun.system.randomness import generator


@config_class
class FedSoft(SeveralModels):
    """u_ks, what model s counts for client k, is the share of k's samples that have their least loss under s.

    Centre s becomes the mean of the participants' models with weights u_ks times the server half's. Each starts from
    weights of its own.

    Attributes:
        period: u is renewed in every round whose number is a multiple of this, and whenever a client has none yet.
        floor: least u_ks, in (0, 1); the others are not reduced for it.
        vote: ``same_samples``: models are compared sample by sample; ``reshuffled``: the losses of different samples
            are compared, as in FedConcat's script, whose loader reshuffles between models.
    """

    offers: ClassVar[frozenset[str]] = frozenset({CENTRES})
    downloads_all: ClassVar[bool] = True

    period: Annotated[int, Ge(1)]
    floor: Annotated[float, Gt(0), Lt(1)]
    vote: Literal["same_samples", "reshuffled"]

    @property
    def same_initialisation(self) -> bool:
        return False

    def assign(self, context: TrainingContext, round: ClusteringRound) -> Assignment:
        membership, cohort = round.membership.clone(), round.cohort
        voters = cohort if round.index % self.period == 0 else cohort[membership[cohort].sum(1) == 0]
        if not len(voters):
            return Assignment(membership)

        def votes(client: int) -> torch.Tensor:
            losses = [context.results(model, client).losses for model in round.models]
            if self.vote == "reshuffled":
                draw = generator(context.seed, "clusters/vote", round.index, client)
                losses = [each[torch.randperm(len(each), generator=draw)] for each in losses]
            return importance(torch.stack(losses, dim=1), self.floor)

        membership[voters] = round.query(voters, votes)
        return Assignment(membership, len(round.models) * int(context.clients.sizes[voters].sum()))


def importance(losses: torch.Tensor, floor: float) -> torch.Tensor:
    """u, float64 ``[M]``: the share of samples with the least loss under each model, of losses ``[n, M]``.

    A model that has diverged (NaN) gets no votes where another has not.
    """
    votes = torch.bincount(losses.nan_to_num(nan=torch.inf).argmin(1), minlength=losses.shape[1]).double()
    return (votes / len(losses)).clamp_min(floor)
