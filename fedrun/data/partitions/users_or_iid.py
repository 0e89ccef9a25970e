"""The partition of data that may have users or not, such as a table of which only the file is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.iid import IID
from fedrun.data.partitions.natural import Natural


@config_class
class UsersOrIID(Natural):
    """:class:`Natural` if samples have users, otherwise :class:`IID`.

    Attributes (besides those of :class:`Natural`):
        clients: number of clients if samples have no users.
        seed: seed of the users' split, or of the permutation; None for the run's seed.
    """

    clients: Annotated[int, Ge(1)]

    def split(self, dataset: Dataset, seed: int) -> Federation:
        if dataset.users is not None:
            return replace(super().split(dataset, seed), note="as natural: a client is a user")
        federation = _WithoutUsers(clients=self.clients, seed=self.seed).split(dataset, seed)
        return replace(federation, note="as iid: samples have no users")


class _WithoutUsers(IID):
    """:class:`IID`, with messages that name the chosen partition."""

    @property
    def choice(self) -> str:
        return "partition=users_or_iid"
