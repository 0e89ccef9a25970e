"""False labels."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.uploads.attacks.base import Attack


@config_class
class LabelFlip(Attack):
    """An attacker's training labels y become C − 1 − y; its test labels stay true.

    ``population.flipped_share`` flips all data of a client, test samples included. The labels of such a client that is
    also an attacker are flipped once.
    """

    @property
    def flips_labels(self) -> bool:
        return True
