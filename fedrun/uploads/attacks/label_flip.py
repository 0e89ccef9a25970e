"""False labels."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from fedrun.config.config_class import config_class
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.population import flip
from fedrun.uploads.attacks.base import Attack


@config_class
class LabelFlip(Attack):
    """An attacker's training labels y become C − 1 − y; its test labels stay true.

    ``population.flipped_share`` flips all data of a client, test samples included. The labels of such a client that is
    also an attacker are flipped once.
    """

    changes_data: ClassVar[bool] = True

    def poisoned(self, federation: Federation, seed: int) -> Federation:
        flipped = () if federation.flipped is None else federation.flipped.nonzero().flatten().tolist()
        honest = sorted(federation.attackers - set(flipped))  # flipping a label twice would restore it
        if not honest:
            return federation
        dataset, clients = federation.dataset, ClientIndices.of([federation.train[client].numpy() for client in honest])
        targets = flip(dataset.targets, clients, dataset.spec.classes)
        return replace(federation, dataset=replace(dataset, targets=targets))
