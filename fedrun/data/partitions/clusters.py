"""Clusters of clients: iid within a cluster, disjoint labels between clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.index_groups import even_sizes, shuffle_groups, sort_by_class, split_groups
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test
from fedrun.system.errors import InputError


@config_class
class Clusters(TrainSplitPartition):
    """Each cluster has its own labels; its samples are divided iid among its clients (MaxFL: Cho et al., TMLR 2024).

    Cluster g has the L labels g L .. g L + L - 1; no client has samples of labels beyond the last cluster's, and the
    test keeps its own. Clients are assigned to clusters at random, equally many to each, within one.

    Attributes (besides those of :class:`TrainSplitPartition`):
        clients: at least one per cluster.
        clusters: number of clusters; 5 in the paper.
        labels_per_cluster: L, number of labels of each cluster; 2 in the paper. Together the clusters may have at most
            as many labels as the dataset has classes.
    """

    clusters: Annotated[int, Ge(1)]
    labels_per_cluster: Annotated[int, Ge(1)]

    needs_classes: ClassVar[bool] = True

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = self.training_targets(dataset)
        labels, classes = self.clusters * self.labels_per_cluster, dataset.spec.classes
        if labels > classes:
            raise InputError(
                f"{self.choice}: clusters={self.clusters} with labels_per_cluster={self.labels_per_cluster} needs "
                f"{labels} classes, the dataset has {classes}"
            )
        if self.clients < self.clusters:
            raise InputError(
                f"{self.choice}: clusters={self.clusters} needs at least as many clients, not {self.clients}"
            )
        rng = self.generator(seed)
        samples, class_sizes = sort_by_class(targets, classes)
        sizes = class_sizes[:labels].reshape(self.clusters, self.labels_per_cluster).sum(1)
        samples = samples[: sizes.sum()]
        shuffle_groups(samples, sizes, rng)
        cluster_of = rng.permutation(np.arange(self.clients) % self.clusters)
        counts = np.zeros((self.clusters, self.clients), dtype=np.int64)
        for cluster, size in enumerate(sizes.tolist()):
            members = cluster_of == cluster
            if size < members.sum():
                raise InputError(
                    f"{self.choice}: cluster {cluster} has {size} samples for {members.sum()} clients; "
                    "use fewer clients"
                )
            counts[cluster, members] = even_sizes(size, members.sum())
        federation = with_pooled_test(dataset, split_groups(samples, counts))
        if labels == classes:
            return federation
        return replace(
            federation,
            note=f"{classes - labels} of {classes} labels are in no cluster; only the test has their samples",
        )
