"""Which clients are willing to take part."""

from __future__ import annotations

from typing import Literal

from fedrun.config.config_class import config_class

Rule = Literal["draw_willing", "draw_then_drop"]


@config_class
class Participation:
    """All selected clients take part; the base of rules by which clients decline."""

    @property
    def by_appeal(self) -> bool:
        """Whether only clients to whom the global model appeals take part, once participation is not mandatory."""
        return False

    @property
    def rule(self) -> Rule:
        """``draw_willing``: the cohort is drawn from the willing clients; ``draw_then_drop``: it is drawn from all
        clients, and those who are not willing are dropped.
        """
        return "draw_willing"

    def mandatory(self, round: int, rounds: int) -> bool:
        """Whether every selected client must take part in round t = 0, 1, .. of T."""
        return True
