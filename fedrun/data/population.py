"""The clients of a partition that never train, clients' own test samples, and clients with flipped labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Le, Lt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.config.marks import NoEffect
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import ClientIndices, Clients, Federation
from fedrun.data.split_samples import HeldOut, split_samples
from fedrun.system.errors import InputError
from fedrun.system.randomness import chosen_seed, numpy_generator


@config_class
class Population:
    """Seen and unseen clients, test samples of each client, and flipped labels (MaxFL: Cho et al., 2024).

    Attributes:
        unseen_clients: how many of the partition's clients, drawn uniformly, never train. They keep the names that they
            have in the partition.
        test_share: share of every client's samples, in [0, 1), that is for the client's own test: of n_k samples
            ⌊(1 − test_share) n_k⌋ (at least one) are for training. 0: clients have the test samples that the partition
            gives them; those of fedrun give none.
        test_of: which of a client's samples are test samples, see :func:`fedrun.data.split_samples.split_samples`.
        flipped_share: share of the clients, seen and unseen, whose labels y become C − 1 − y in training and test.
        pooled: whether all clients' data then become one client's (see
            :meth:`fedrun.data.federation.Federation.pooled`). Nothing is sent, and ``clients_per_round`` has no effect.
        seed: seed of these draws; None for the run's seed.
    """

    unseen_clients: Annotated[int, Ge(0)]
    test_share: Annotated[float, Ge(0), Lt(1)]
    test_of: Annotated[HeldOut, NoEffect("test_share", (0.0,))]
    flipped_share: Annotated[float, Ge(0), Le(1)]
    pooled: Annotated[bool, Neutral(False)]
    seed: Annotated[int, Ge(0)] | None

    def populate(self, federation: Federation, seed: int) -> Federation:
        """The federation with this population.

        Args:
            federation: the result of the partition; with ``test_share`` it has no ``client_test``.
            seed: the run's seed.

        Raises:
            InputError: there are too few clients.
        """
        draw = numpy_generator(chosen_seed(self.seed, seed), "population")
        clients = federation.train
        count = len(clients)
        if self.unseen_clients >= count:
            raise InputError(
                f"population.unseen_clients={self.unseen_clients}: the partition has {count} clients, and at least one "
                f"must train; allowed: 0 to {count - 1}"
            )
        unseen = np.zeros(count, dtype=bool)
        unseen[draw.choice(count, self.unseen_clients, replace=False)] = True
        flipped = np.zeros(count, dtype=bool)
        number = round(self.flipped_share * count)
        if self.flipped_share and not number:
            raise InputError(
                f"population.flipped_share={self.flipped_share:g}: of {count} clients that is none; allowed: 0, or "
                f"{1 / count:g} for one"
            )
        flipped[draw.choice(count, number, replace=False)] = True
        dataset, train, test = federation.dataset, clients, federation.client_test
        if self.test_share:
            train, test = split_samples(
                clients, self.test_share, self.test_of, dataset.overlap, draw, "population.test_of"
            )
            if not len(test.select(~unseen).samples):
                raise InputError(
                    f"population.test_share={self.test_share:g}: no client that trains has enough samples for a test "
                    "sample; allowed: 0, a larger share, or clients with more samples"
                )
        if not unseen.any() and not flipped.any() and not self.test_share:
            return federation
        if test is not None and flipped.any():
            dataset, test = with_own_copies(dataset, test, flipped, federation.test.samples)

        def group(selected: np.ndarray) -> Clients:
            if selected.all():
                return Clients(train, test, torch.from_numpy(flipped))
            group_test = None if test is None else test.select(selected)
            if group_test is not None and not len(group_test.samples):  # all tests are the other group's
                group_test = None
            return Clients(train.select(selected), group_test, torch.from_numpy(flipped[selected]))

        seen = group(~unseen)
        for samples in (train, test):
            if samples is not None and flipped.any():
                dataset = replace(dataset, targets=flip(dataset.targets, samples.select(flipped), dataset.spec.classes))
        return replace(
            federation,
            dataset=dataset,
            train=seen.train,
            client_test=seen.test,
            flipped=seen.flipped,
            unseen=group(unseen) if unseen.any() else None,
        )


def with_own_copies(
    dataset: Dataset, test: ClientIndices, chosen: np.ndarray, pooled: torch.Tensor
) -> tuple[Dataset, ClientIndices]:
    """The test samples of some clients (bool ``[N]``) that are also pooled test samples (int64 ``[n]``) become copies
    after all other samples, so that their labels can change while those of the pooled test do not.
    """
    shared = torch.repeat_interleave(torch.from_numpy(chosen), test.sizes) & torch.isin(test.samples, pooled)
    if not shared.any():
        return dataset, test
    copied, samples = test.samples[shared], test.samples.clone()
    samples[shared] = torch.arange(len(dataset.targets), len(dataset.targets) + len(copied))
    inputs = torch.cat([dataset.inputs, dataset.inputs[copied]])
    targets = torch.cat([dataset.targets, dataset.targets[copied]])
    return replace(dataset, inputs=inputs, targets=targets), replace(test, samples=samples)


def flip(targets: torch.Tensor, clients: ClientIndices, classes: int) -> torch.Tensor:
    """A copy of the targets, int64 ``[n]``, in which the labels of these clients' samples are y → C − 1 − y."""
    flipped = targets.clone()
    flipped[clients.samples] = classes - 1 - flipped[clients.samples]
    return flipped
