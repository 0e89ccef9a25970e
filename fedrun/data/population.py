"""What becomes of a partition's clients: who is never seen in training, who tests on what, whose labels differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Le, Lt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.data.federation import ClientIndices, Clients, Federation
from fedrun.data.split_samples import HeldOut, split_samples
from fedrun.system.errors import InputError
from fedrun.system.randomness import numpy_generator


@config_class
class Population:
    """Turns a partition's clients into seen and unseen ones with test samples of their own (MaxFL: Cho et al., 2024).

    Attributes:
        unseen_clients: how many of the partition's clients, drawn uniformly, never take part in training. They are
            drawn by the same scheme as the others, and keep the name they have in the partition.
        test_share: share of every client's samples, in [0, 1), that it keeps for its own test: of n_k samples
            ⌊(1 − test_share) n_k⌋ (at least one) are for training. 0: clients have no test samples of their own.
        test_of: which of its samples a client tests on, see :func:`fedrun.data.split_samples.split_samples`.
        flipped_share: share of the clients, seen and unseen, whose labels y are C − 1 − y in training and test.
        pooled: whether the data of all clients are then brought to one place, as a single client's (see
            :meth:`fedrun.data.federation.Federation.pooled`). Nothing is sent, and ``clients_per_round`` has no effect.
        seed: of these draws; None for the run's seed.
    """

    unseen_clients: Annotated[int, Ge(0)]
    test_share: Annotated[float, Ge(0), Lt(1)]
    test_of: HeldOut
    flipped_share: Annotated[float, Ge(0), Le(1)]
    pooled: Annotated[bool, Neutral(False)]
    seed: Annotated[int, Ge(0)] | None

    def populate(self, federation: Federation, seed: int) -> Federation:
        """The federation with this population.

        Args:
            federation: as the partition made it.
            seed: the run's seed.

        Raises:
            InputError: there are too few clients.
        """
        draw = numpy_generator(seed if self.seed is None else self.seed, "population")
        everyone = federation.train
        count = len(everyone)
        if self.unseen_clients >= count:
            raise InputError(
                f"population.unseen_clients={self.unseen_clients}: the partition has {count} clients, and at least one "
                f"must be left to train; allowed: 0 to {count - 1}"
            )
        unseen = np.zeros(count, dtype=bool)
        unseen[draw.choice(count, self.unseen_clients, replace=False)] = True
        flipped = np.zeros(count, dtype=bool)
        number = round(self.flipped_share * count)
        if self.flipped_share and not number:
            raise InputError(
                f"population.flipped_share={self.flipped_share:g}: of {count} clients that is nobody; allowed: 0, or "
                f"{1 / count:g} for one"
            )
        flipped[draw.choice(count, number, replace=False)] = True
        train, test = (everyone, None)
        if self.test_share:
            overlap = federation.dataset.overlap
            train, test = split_samples(everyone, self.test_share, self.test_of, overlap, draw, "population.test_of")
        if test is not None and not len(test.samples):
            raise InputError(
                f"population.test_share={self.test_share:g}: no client has enough samples to give one up; "
                "allowed: 0, or more"
            )
        if not unseen.any() and not flipped.any() and test is None:
            return federation

        def among(chosen: np.ndarray) -> Clients:
            if chosen.all():
                return Clients(train, test, torch.from_numpy(flipped))
            own = None if test is None else test.select(chosen)
            return Clients(train.select(chosen), own, torch.from_numpy(flipped[chosen]))

        seen = among(~unseen)
        dataset = federation.dataset
        if flipped.any():
            dataset = replace(dataset, targets=flip(dataset.targets, everyone.select(flipped), dataset.spec.classes))
        return replace(
            federation,
            dataset=dataset,
            train=seen.train,
            client_test=seen.test,
            flipped=seen.flipped,
            unseen=among(unseen) if unseen.any() else None,
        )


def flip(targets: torch.Tensor, shares: ClientIndices, classes: int) -> torch.Tensor:
    """The targets with those of the shares' samples reversed, y → C − 1 − y: a new int64 ``[n]``."""
    changed = targets.clone()
    changed[shares.samples] = classes - 1 - changed[shares.samples]
    return changed
