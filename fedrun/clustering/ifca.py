"""IFCA: clients choose the model that fits them best (Ghosh et al., NeurIPS 2020, arXiv 2006.04088)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass

from fedrun.clustering.base import Choice, Place, SeveralModels, Turn, reassigned
from fedrun.recipe import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class IFCA(SeveralModels):
    """In every round a participant trains the model with the least mean loss on its training samples.

    Attributes:
        same_init: whether all models start alike, as in FedConcat's script: then the first choice is model 0 for all,
            and no other is ever trained. False, as IFCA requires: each starts from weights of its own.
    """

    downloads_all: ClassVar[bool] = True

    same_init: bool

    @property
    def same_initialisation(self) -> bool:
        return self.same_init

    def chosen(self, place: Place, turn: Turn) -> Choice:
        def losses(client: int) -> torch.Tensor:
            return torch.stack([place.results(model, client).losses.double().mean() for model in turn.models])

        looked = len(turn.models) * int(place.clients.sizes[turn.cohort].sum())
        return Choice(reassigned(turn, place.asked(turn.cohort, losses).argmin(1)), looked)
