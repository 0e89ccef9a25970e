"""Which client has which samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from fedrun.data.datasets.base import Dataset
from fedrun.data.evaluation_split import EvaluationSplit
from fedrun.data.offsets import offsets_of
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class ClientIndices:
    """The sample indices of N clients: client ``k`` has ``samples[offsets[k]:offsets[k + 1]]``.

    Attributes:
        samples: int64 ``[m]``, indices into the dataset, grouped by client.
        offsets: int64 ``[N + 1]``, ascending, from 0 to m.
        names: one name per client, or None if the clients are named by their numbers.
    """

    samples: torch.Tensor
    offsets: torch.Tensor
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, parts: Sequence[np.ndarray], names: Iterable[object] | None = None) -> ClientIndices:
        """From one array of sample indices per client, and their names, such as strings or numbers.

        Raises:
            InputError: they are not integers ``[n_k]``.
        """
        for client, part in enumerate(map(np.asarray, parts)):
            if part.ndim != 1 or (len(part) and part.dtype.kind not in "iu"):
                raise InputError(
                    f"ClientIndices.of: the samples of client {client} are {part.dtype} {list(part.shape)}; allowed: "
                    "integers [n]"
                )
        offsets = offsets_of([len(part) for part in parts])
        samples = np.concatenate(parts) if parts else np.empty(0)
        texts = None if names is None else tuple(map(str, names))
        return cls(torch.from_numpy(samples.astype(np.int64)), torch.from_numpy(offsets), texts)

    @classmethod
    def single(cls, samples: torch.Tensor, name: str) -> ClientIndices:
        """One client, or one holder of test samples, that has all of these samples, int64 ``[m]``."""
        return cls(samples, torch.tensor([0, len(samples)]), (name,))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> torch.Tensor:
        """The sample indices of one client, int64 ``[n_k]``."""
        return self.samples[self.offsets[client] : self.offsets[client + 1]]

    def select(self, selected: np.ndarray) -> ClientIndices:
        """The indices of some clients (bool ``[N]``), under their present names."""
        mask = torch.from_numpy(selected)
        samples = self.samples[torch.repeat_interleave(mask, self.sizes)]
        offsets = torch.from_numpy(offsets_of(self.sizes.numpy()[selected]))
        return ClientIndices(samples, offsets, tuple(self.name(int(client)) for client in np.flatnonzero(selected)))

    def class_counts(self, targets: torch.Tensor, classes: int) -> torch.Tensor:
        """Number of samples of each class per client, int64 ``[N, classes]``, from the dataset's targets ``[n]``."""
        counts = torch.bincount(self.owners * classes + targets[self.samples], minlength=len(self) * classes)
        return counts.view(len(self), classes)

    @cached_property
    def sizes(self) -> torch.Tensor:
        """Number of samples of each client, int64 ``[N]``."""
        return self.offsets.diff()

    @property
    def owners(self) -> torch.Tensor:
        """The client of each entry of :attr:`samples`, int64 ``[m]``."""
        return torch.repeat_interleave(torch.arange(len(self)), self.sizes)

    def sums(self, values: torch.Tensor, owners: torch.Tensor | None = None) -> torch.Tensor:
        """The sum over each client's samples of a number for each of :attr:`samples`, float64 ``[N]``. ``owners`` are
        :attr:`owners`, if they are known.
        """
        owners = self.owners if owners is None else owners
        return torch.zeros(len(self), dtype=torch.float64).index_add(0, owners, values.double())

    def name(self, client: int) -> str:
        """The name of one client."""
        return str(client) if self.names is None else self.names[client]


@dataclass(frozen=True)
class Clients:
    """A group of N clients.

    Attributes:
        train: their training samples.
        test: their test samples; None if clients have no test samples.
        flipped: which clients have flipped labels, bool ``[N]``.
    """

    train: ClientIndices
    test: ClientIndices | None
    flipped: torch.Tensor


@dataclass(frozen=True)
class Federation:
    """A dataset, and which client has which of its samples.

    Attributes:
        dataset: the samples.
        train: the clients that training draws its cohorts from, with their training samples.
        test: the pooled samples on which the global model is tested: one entry per user, or a single entry if the test
            set has no users.
        client_test: test samples of the clients in ``train``, in their order and under their names; None if they have
            none.
        unseen: clients of the same distribution that never train.
        flipped: which clients in ``train`` have flipped labels, bool ``[N]``; None for none of them.
        attackers: numbers of the clients in ``train`` that attack.
        evaluation_split: what ``test`` and ``client_test`` hold: ``validation`` if the samples were held out of
            training to choose settings; then there are no test samples.
        is_pooled: whether all data are in one place, so that nothing is sent.
        triggered: copies of test samples on which an attack's success is measured, int64 ``[n]``; None: there are none.
        note: what the partition inferred from the data, for the display; empty: nothing.
    """

    dataset: Dataset
    train: ClientIndices
    test: ClientIndices
    client_test: ClientIndices | None = None
    unseen: Clients | None = None
    flipped: torch.Tensor | None = None
    attackers: frozenset[int] = frozenset()
    evaluation_split: EvaluationSplit = "test"
    is_pooled: bool = False
    triggered: torch.Tensor | None = None
    note: str = ""

    @property
    def has_pooled_test(self) -> bool:
        """Whether ``test`` is one set of samples, named by its split, instead of users' samples."""
        return len(self.test) == 1 and self.test.names in (None, (self.evaluation_split,))

    @cached_property
    def used_samples(self) -> torch.Tensor:
        """The samples that some client has or that are used in a test, ascending and each once, int64 ``[m]``."""
        unseen = () if self.unseen is None else (self.unseen.train, self.unseen.test)
        parts = [part.samples for part in (self.train, self.test, self.client_test, *unseen) if part is not None]
        triggered = () if self.triggered is None else (self.triggered,)
        return torch.from_numpy(np.unique(torch.cat([*parts, *triggered]).numpy()))

    def pooled(self) -> Federation:
        """The same data with a single client, named ``all``, that has all clients' samples and is not an attacker."""
        train, client_test = self.train, self.client_test
        return replace(
            self,
            train=ClientIndices.single(train.samples, "all"),
            client_test=None if client_test is None else ClientIndices.single(client_test.samples, "all"),
            flipped=None,
            attackers=frozenset(),
            is_pooled=True,
        )
