"""IFCA: clients choose the model that fits them best (Ghosh et al., NeurIPS 2020, arXiv 2006.04088)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.client_memory import ClientMemory
from fedrun.clustering.base import Choice, Clustering, Place, one_hot
from fedrun.recipe import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class IFCA(Clustering):
    """In every round a participant trains the model with the least mean loss on its training samples.

    Attributes:
        clusters: K ≥ 1 models.
        same_init: whether all models start alike, as in FedConcat's script: then the first choice is model 0 for all,
            and no other is ever trained. False, as IFCA requires: each starts from weights of its own.
    """

    downloads_all: ClassVar[bool] = True

    clusters: Annotated[int, Ge(1)]
    same_init: bool

    @property
    def several(self) -> bool:
        return True

    @property
    def initial_models(self) -> int:
        return self.clusters

    @property
    def same_initialisation(self) -> bool:
        return self.same_init

    def chosen(
        self,
        place: Place,
        round: int,
        cohort: torch.Tensor,
        models: Sequence[torch.Tensor],
        membership: torch.Tensor,
        memory: ClientMemory,
    ) -> Choice:
        def losses(client: int) -> torch.Tensor:
            return torch.stack([place.results(model, client).losses.double().mean() for model in models])

        membership = membership.clone()
        membership[cohort] = one_hot(place.asked(cohort, losses).argmin(1), len(models))
        return Choice(membership, len(models) * int(place.clients.sizes[cohort].sum()))
