"""Who holds which samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from fedrun.data.datasets.base import Dataset


@dataclass(frozen=True)
class ClientIndices:
    """Samples shared out over holders: holder ``k`` has ``samples[offsets[k]:offsets[k + 1]]``.

    Attributes:
        samples: int64 ``[m]``, sample numbers of the dataset, grouped by holder.
        offsets: int64 ``[holders + 1]``, ascending, from 0 to m.
        names: one name per holder, or None where their numbers are their names.
    """

    samples: torch.Tensor
    offsets: torch.Tensor
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, parts: Sequence[np.ndarray], names: tuple[str, ...] | None = None) -> ClientIndices:
        """The shares of a list that has each holder's sample numbers."""
        offsets = np.cumsum([0, *(len(part) for part in parts)])
        samples = np.concatenate(parts) if parts else np.empty(0)
        return cls(torch.from_numpy(samples.astype(np.int64)), torch.from_numpy(offsets.astype(np.int64)), names)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, holder: int) -> torch.Tensor:
        """The sample numbers of one holder, int64 ``[n_k]``."""
        return self.samples[self.offsets[holder] : self.offsets[holder + 1]]

    def select(self, holders: np.ndarray) -> ClientIndices:
        """The shares of some holders (bool ``[holders]``), under the names they have here."""
        kept = torch.from_numpy(holders)
        samples = self.samples[torch.repeat_interleave(kept, self.sizes)]
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), self.sizes[kept].cumsum(0)])
        return ClientIndices(samples, offsets, tuple(self.name(int(holder)) for holder in np.flatnonzero(holders)))

    def class_counts(self, targets: torch.Tensor, classes: int) -> torch.Tensor:
        """How many samples of each class every holder has: int64 ``[holders, classes]``, given all targets ``[n]``."""
        holder = torch.repeat_interleave(torch.arange(len(self)), self.sizes)
        counts = torch.bincount(holder * classes + targets[self.samples], minlength=len(self) * classes)
        return counts.view(len(self), classes)

    @cached_property
    def sizes(self) -> torch.Tensor:
        """Number of samples of each holder, int64 ``[holders]``."""
        return self.offsets.diff()

    def name(self, holder: int) -> str:
        return str(holder) if self.names is None else self.names[holder]


@dataclass(frozen=True)
class Clients:
    """Some clients and what belongs to each.

    Attributes:
        train: their training samples.
        test: the samples each tests on; None where clients have none of their own.
        flipped: whose labels are flipped, bool ``[clients]``.
    """

    train: ClientIndices
    test: ClientIndices | None
    flipped: torch.Tensor


@dataclass(frozen=True)
class Federation:
    """A dataset and who holds which of its samples.

    Attributes:
        dataset: the samples.
        train: the clients that training draws its cohorts from, with their training samples.
        test: the pooled samples on which the global model is tested: one holder per held-out user, or a single holder
            where the test set belongs to nobody.
        client_test: test samples of the clients in ``train``, in their order; None where they have none.
        unseen: clients of the same distribution that never take part in training.
        flipped: which clients in ``train`` have flipped labels, bool ``[N]``; None for none of them.
        attackers: numbers of the clients in ``train`` that attack.
        evaluation_split: what ``test`` and ``client_test`` hold: ``validation`` if the samples were held out of
            training to choose settings; then there are no test samples.
        is_pooled: whether all data are in one place, so that nothing is sent.
    """

    dataset: Dataset
    train: ClientIndices
    test: ClientIndices
    client_test: ClientIndices | None = None
    unseen: Clients | None = None
    flipped: torch.Tensor | None = None
    attackers: frozenset[int] = frozenset()
    evaluation_split: Literal["test", "validation"] = "test"
    is_pooled: bool = False

    def pooled(self) -> Federation:
        """The same data in one place: a single client, named ``all`` and honest, holds every client's samples."""
        samples = self.train.samples
        everything = ClientIndices(samples, torch.tensor([0, len(samples)]), ("all",))
        own = self.client_test
        tests = None if own is None else ClientIndices(own.samples, torch.tensor([0, len(own.samples)]), ("all",))
        return replace(self, train=everything, client_test=tests, flipped=None, attackers=frozenset(), is_pooled=True)
