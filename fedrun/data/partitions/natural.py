"""Clients that are the people who produced the samples."""

from __future__ import annotations

import logging
import random
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Users
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.partitions.base import Partition
from fedrun.data.partitions.index_groups import offsets_of, ranges
from fedrun.system.errors import InputError

log = logging.getLogger(__name__)


@config_class
class Natural(Partition):
    """A client is a user; other users are held out whole for the test (LEAF: Caldas et al., 2018; TurboSVM-FL).

    The publisher's split into training and test users is kept where there is one. Otherwise LEAF's own draw is made:
    ``random.Random(seed).sample(range(U), int(train_fraction * U))`` are the training users, the others the test users,
    both in the dataset's order. Users with too few samples are dropped after the split, as TurboSVM-FL does it.

    With LEAF's ``all_data`` files the keys are those of its scripts: ``sample_fraction`` is ``--sf``, the dataset's own
    ``min_samples`` is ``-k`` and ``train_fraction`` is ``--tf`` of a split by user. LEAF's split by sample is
    ``population.test_share``; by default that is LEAF's temporal split where samples are windows of text.

    Attributes:
        sample_fraction: share of all samples, in (0, 1]: users are drawn, in training and test alike, until they have
            this share together; the others are left out. Users stay whole, also the last one.
        train_fraction: share of the users that become clients, in (0, 1); 0.9 in LEAF and TurboSVM-FL.
        min_samples: smallest number of samples of a user, in training and test, unless the dataset asks for more
            (:attr:`fedrun.data.datasets.base.Users.min_samples`); 1 drops only users without samples.
        seed: of the users' split, 0 in TurboSVM-FL for all of its runs; None for the run's seed.
    """

    sample_fraction: Annotated[float, Gt(0), Le(1)]
    train_fraction: Annotated[float, Gt(0), Lt(1)]
    min_samples: Annotated[int, Ge(1)]
    seed: Annotated[int, Ge(0)] | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        users = dataset.users
        if users is None:
            raise InputError(
                "partition=natural needs a dataset whose samples have users, and this one has none; "
                "allowed here: any other partition"
            )
        seed = seed if self.seed is None else self.seed
        drawn = self._drawn(users, seed)
        training = self._training_users(users, drawn, seed)
        least = max(self.min_samples, users.min_samples)
        enough = drawn & (users.offsets.diff().numpy() >= least)
        for group, there in (("training", drawn & training), ("test", drawn & ~training)):
            kept = there & enough
            if not kept.any():
                raise InputError(
                    f"partition=natural: no {group} user is left of {len(users.names)} users with "
                    f"sample_fraction={self.sample_fraction:g}, train_fraction={self.train_fraction:g} and at least "
                    f"{least} samples; use more users, or a smaller partition.min_samples or "
                    "dataset.min_samples_after_split"
                )
            log.info(
                "partition=natural: %d %s users; %d more have fewer than %d samples and are left out",
                kept.sum(), group, (there & ~enough).sum(), least,
            )  # fmt: skip
        return Federation(
            dataset, indices_of_users(users, training & enough), indices_of_users(users, ~training & enough)
        )

    def _drawn(self, users: Users, seed: int) -> np.ndarray:
        """Which users there are at all, bool ``[U]``."""
        if self.sample_fraction == 1:
            return np.ones(len(users.names), dtype=bool)
        people = {name: person for person, name in enumerate(dict.fromkeys(users.names))}  # some are in both splits
        person = np.array([people[name] for name in users.names])
        sizes = np.bincount(person, weights=users.offsets.diff().numpy())
        order = list(people.values())
        random.Random(seed).shuffle(order)
        before = np.cumsum(sizes[order]) - sizes[order]
        drawn = np.zeros(len(people), dtype=bool)
        drawn[np.array(order)[before < self.sample_fraction * sizes.sum()]] = True
        kept: np.ndarray = drawn[person]
        return kept

    def _training_users(self, users: Users, drawn: np.ndarray, seed: int) -> np.ndarray:
        """Which users train, bool ``[U]``, of those who were drawn (bool ``[U]``)."""
        count = len(users.names)
        if users.training < count:
            return np.arange(count) < users.training
        there = np.flatnonzero(drawn)
        training = np.zeros(count, dtype=bool)
        training[there[random.Random(seed).sample(range(len(there)), int(self.train_fraction * len(there)))]] = True
        return training


def indices_of_users(users: Users, chosen: np.ndarray) -> ClientIndices:
    """Each chosen user (bool ``[U]``) holds all of its samples, in the dataset's order."""
    starts = users.offsets[:-1].numpy()[chosen]
    sizes = users.offsets.diff().numpy()[chosen]
    names = tuple(users.names[user] for user in np.flatnonzero(chosen))
    samples, offsets = ranges(starts, sizes), offsets_of(sizes)
    return ClientIndices(torch.from_numpy(samples), torch.from_numpy(offsets), names)
