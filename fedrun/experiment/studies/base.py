"""What a paper computes without a federation: its toy problems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path


class Study(ABC):
    """An option of the configuration that takes the place of a run."""

    @abstractmethod
    def carry_out(self, folder: Path, seed: int) -> str:
        """Compute, write the numbers and the figure into the folder, and return what to print.

        Args:
            folder: which exists.
            seed: of every random choice.
        """
