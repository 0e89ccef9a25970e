"""The base class of partitions: a partition divides a dataset's training samples among clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fedrun.config.option_name import chosen
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation


class Partition(ABC):
    """A partition option of the configuration.

    Attributes:
        needs_classes: whether it divides samples by their class.
    """

    needs_classes: ClassVar[bool] = False

    @property
    def choice(self) -> str:
        """The partition as the command line chooses it, such as ``partition=iid``, for messages."""
        return chosen("partition", self)

    @abstractmethod
    def split(self, dataset: Dataset, seed: int) -> Federation:
        """Divide the samples among clients.

        Args:
            dataset: the samples.
            seed: the run's seed, used if the partition does not have its own.

        Raises:
            InputError: this dataset cannot be divided in this way.
        """
