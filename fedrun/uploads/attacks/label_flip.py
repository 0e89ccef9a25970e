"""False labels."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.uploads.attacks.base import Attack


@config_class
class LabelFlip(Attack):
    """An attacker's training labels y become C − 1 − y; its test labels stay true.

    For clients whose whole data, test samples included, follow another rule, see ``population.flipped_share``. One of
    those that is an attacker, too, has labels that are flipped once.
    """

    @property
    def flips_labels(self) -> bool:
        return True
