"""Studies: computations of a paper without a federation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path


class Study(ABC):
    """A computation that replaces a run."""

    @abstractmethod
    def run(self, folder: Path, seed: int) -> str:
        """Compute, write the numbers and the figure into the folder, and return what to print.

        Args:
            folder: an existing folder.
            seed: seed of every random choice.
        """
