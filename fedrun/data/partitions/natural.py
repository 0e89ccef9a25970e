"""Natural partition: a client is a user of the dataset."""

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
from fedrun.data.offsets import offsets_of
from fedrun.data.partitions.base import Partition
from fedrun.data.partitions.index_groups import ranges
from fedrun.system.errors import InputError
from fedrun.system.randomness import chosen_seed

log = logging.getLogger(__name__)


@config_class
class Natural(Partition):
    """A client is a user; other users are held out whole for the test (LEAF: Caldas et al., 2018; TurboSVM-FL).

    If the publisher has split the users into training and test users, that split is kept. Otherwise users are drawn as
    in LEAF: ``random.Random(seed).sample(range(U), int(train_fraction * U))`` are the training users, the others the
    test users, both in the dataset's order. Users with too few samples are dropped after the split, as in TurboSVM-FL.

    With LEAF's ``all_data`` files the keys are those of its scripts: ``sample_fraction`` is ``--sf``, the dataset's own
    ``min_samples`` is ``-k`` and ``train_fraction`` is ``--tf`` of a split by user. With a ``sample_fraction`` below 1
    users differ from LEAF's, which draws them file by file, cuts the samples of the last one, and drops users with few
    samples after that, not before. LEAF's split by sample is ``population.test_share``; by default that is LEAF's
    temporal split where samples are windows of text that overlap.

    Attributes:
        sample_fraction: share of all samples, in (0, 1]: whole users are drawn, for training and test alike, until
            together they have at least this share. The others are dropped. A test split without users is kept whole.
        train_fraction: share of the users that become clients, in (0, 1); 0.9 in LEAF and TurboSVM-FL.
        min_samples: smallest number of samples of a user, in training and test, unless the dataset requires more
            (:attr:`fedrun.data.datasets.base.Users.min_samples`); 1 drops only users without samples.
        seed: seed of the users' split; 0 in all runs of TurboSVM-FL; None for the run's seed.
    """

    sample_fraction: Annotated[float, Gt(0), Le(1)]
    train_fraction: Annotated[float, Gt(0), Lt(1)]
    min_samples: Annotated[int, Ge(1)]
    seed: Annotated[int, Ge(0)] | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        users = dataset.users
        if users is None:
            raise InputError(
                f"{self.choice} needs a dataset whose samples have users, and this one has none; allowed: "
                "another partition, such as partition=iid or partition=dirichlet; of a table, dataset.client=COLUMN "
                "names the users"
            )
        seed = chosen_seed(self.seed, seed)
        sampled = self._sampled_users(users, seed)
        training = self._training_users(users, sampled, seed)
        min_samples = max(self.min_samples, users.min_samples)
        least = np.full(len(users.names), min_samples)
        least[len(users.names) - users.pooled_test :] = 1
        enough = sampled & (users.offsets.diff().numpy() >= least)
        for group, members in (("training", sampled & training), ("test", sampled & ~training)):
            kept = members & enough
            if not kept.any():
                raise InputError(
                    f"{self.choice}: no {group} user is left of {len(users.names)} users with "
                    f"sample_fraction={self.sample_fraction:g}, train_fraction={self.train_fraction:g} and at least "
                    f"{min_samples} samples; use more users, or a smaller partition.min_samples or "
                    "dataset.min_samples_after_split"
                )
            if kept.sum() < members.sum():
                log.info(
                    "%s: %d of %d %s users have at least %d samples; the others are left out",
                    self.choice, kept.sum(), members.sum(), group, min_samples,
                )  # fmt: skip
        return Federation(
            dataset, indices_of_users(users, training & enough), indices_of_users(users, ~training & enough)
        )

    def _sampled_users(self, users: Users, seed: int) -> np.ndarray:
        """Which users ``sample_fraction`` keeps, bool ``[U]``."""
        result = np.ones(len(users.names), dtype=bool)
        if self.sample_fraction == 1:
            return result
        names = users.names[: len(users.names) - users.pooled_test]
        # A person may be a user of both splits.
        people = {name: person for person, name in enumerate(dict.fromkeys(names))}
        person = np.array([people[name] for name in names])
        sizes = np.bincount(person, weights=users.offsets.diff().numpy()[: len(names)])
        order = list(people.values())
        random.Random(seed).shuffle(order)
        before = np.cumsum(sizes[order]) - sizes[order]
        sampled = np.zeros(len(people), dtype=bool)
        sampled[np.array(order)[before < self.sample_fraction * sizes.sum()]] = True
        result[: len(names)] = sampled[person]
        return result

    def _training_users(self, users: Users, sampled: np.ndarray, seed: int) -> np.ndarray:
        """Which users are training users, bool ``[U]``, given the sampled ones (bool ``[U]``)."""
        count = len(users.names)
        if users.training < count:
            return np.arange(count) < users.training
        candidates = np.flatnonzero(sampled)
        training = np.zeros(count, dtype=bool)
        size = int(self.train_fraction * len(candidates))
        training[candidates[random.Random(seed).sample(range(len(candidates)), size)]] = True
        return training


def indices_of_users(users: Users, chosen: np.ndarray) -> ClientIndices:
    """Each chosen user (bool ``[U]``) as a client with all of the user's samples, in the dataset's order."""
    starts = users.offsets[:-1].numpy()[chosen]
    sizes = users.offsets.diff().numpy()[chosen]
    names = tuple(users.names[user] for user in np.flatnonzero(chosen))
    samples, offsets = ranges(starts, sizes), offsets_of(sizes)
    return ClientIndices(torch.from_numpy(samples), torch.from_numpy(offsets), names)
