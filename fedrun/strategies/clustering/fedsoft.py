"""FedSoft: clients belong to all clusters to some extent (Ruan, Joe-Wong, AAAI 2022, arXiv 2112.06053)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.strategies.clustering.base import Assignment, ClusteringRound, SeveralModels
from fedrun.strategies.clustering.context import TrainingContext
from fedrun.system.randomness import generator


@config_class
class FedSoft(SeveralModels):
    """u_ks, the weight of model s for client k, is the share of k's samples for which s has the least loss.

    Centre s becomes the mean of the participants' models, with weights u_ks times the server strategy's weights. The
    models have different initial parameters.

    Attributes:
        period: u is computed again in every round whose number is a multiple of this, and for a client without u.
        floor: least u_ks, in (0, 1); the other weights are not reduced to compensate for it.
        vote: ``same_samples``: models are compared sample by sample; ``reshuffled``: the losses of different samples
            are compared, as in FedConcat's script, whose loader reshuffles between models.
    """

    period: Annotated[int, Ge(1)]
    floor: Annotated[float, Gt(0), Lt(1)]
    vote: Literal["same_samples", "reshuffled"]

    same_initialisation: ClassVar[bool] = False
    downloads_all: ClassVar[bool] = True
    mixes: ClassVar[bool] = True

    def assign(self, context: TrainingContext, round: ClusteringRound) -> Assignment:
        membership, cohort = round.membership.clone(), round.cohort
        voters = cohort if round.index % self.period == 0 else cohort[membership[cohort].sum(1) == 0]
        if not len(voters):
            return Assignment(membership)

        def votes(client: int) -> torch.Tensor:
            losses = [context.results(model, client).losses for model in round.models]
            if self.vote == "reshuffled":
                draw = generator(context.seed, "clusters/vote", round.index, client)
                losses = [model_losses[torch.randperm(len(model_losses), generator=draw)] for model_losses in losses]
            return importance(torch.stack(losses, dim=1), self.floor)

        membership[voters] = round.query(voters, votes)
        return Assignment(membership, round.passes(voters))


def importance(losses: torch.Tensor, floor: float) -> torch.Tensor:
    """u, float64 ``[M]``: the share of samples with the least loss under each model, of losses ``[n, M]``.

    A model that has diverged (NaN) gets no votes unless all have.
    """
    votes = torch.bincount(losses.nan_to_num(nan=torch.inf).argmin(1), minlength=losses.shape[1]).double()
    return (votes / len(losses)).clamp_min(floor)
