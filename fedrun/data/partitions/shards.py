"""Pathological non-IID data: every client has samples of a few labels only."""

from __future__ import annotations

from typing import Annotated, ClassVar

from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.offsets import offsets_of
from fedrun.data.partitions.index_groups import even_sizes, ranges, sort_by_class, split_consecutive
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test


@config_class
class Shards(TrainSplitPartition):
    """Label-sorted samples cut into shards, of which each client gets a few at random (McMahan et al., 2017).

    Samples of one label keep their order. If shards cannot have equal sizes, the first ones have one sample
    more.

    Attributes (besides those of :class:`TrainSplitPartition`):
        shards_per_client: 2 in the paper: at most about two labels per client.
    """

    shards_per_client: Annotated[int, Ge(1)]

    needs_classes: ClassVar[bool] = True

    def split(self, dataset: Dataset, seed: int) -> Federation:
        count = self.clients * self.shards_per_client
        targets = self.training_targets(dataset, self.shards_per_client, "shards_per_client")
        samples, _ = sort_by_class(targets, dataset.spec.classes)
        sizes = even_sizes(len(targets), count)
        rng = self.generator(seed)
        shards = rng.permutation(count)
        client_sizes = sizes[shards].reshape(self.clients, self.shards_per_client).sum(1)
        return with_pooled_test(
            dataset, split_consecutive(samples[ranges(offsets_of(sizes)[shards], sizes[shards])], client_sizes)
        )
