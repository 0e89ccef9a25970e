"""Who holds which samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedrun.datasets.base import Dataset


@dataclass(frozen=True)
class Shares:
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
    def of(cls, parts: Sequence[np.ndarray], names: tuple[str, ...] | None = None) -> Shares:
        """The shares of a list that has each holder's sample numbers."""
        offsets = np.cumsum([0, *(len(part) for part in parts)])
        samples = np.concatenate(parts) if parts else np.empty(0)
        return cls(torch.from_numpy(samples.astype(np.int64)), torch.from_numpy(offsets.astype(np.int64)), names)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, holder: int) -> torch.Tensor:
        """The sample numbers of one holder, int64 ``[n_k]``."""
        return self.samples[self.offsets[holder] : self.offsets[holder + 1]]

    @property
    def sizes(self) -> torch.Tensor:
        """Number of samples of each holder, int64 ``[holders]``."""
        return self.offsets.diff()

    def name(self, holder: int) -> str:
        return str(holder) if self.names is None else self.names[holder]


@dataclass(frozen=True)
class Federation:
    """A dataset and who holds which of its samples.

    Attributes:
        dataset: the samples.
        train: the clients that training draws its cohorts from, with their training samples.
        test: the pooled samples on which the global model is tested: one holder per held-out user, or a single holder
            where the test set belongs to nobody.
    """

    dataset: Dataset
    train: Shares
    test: Shares
