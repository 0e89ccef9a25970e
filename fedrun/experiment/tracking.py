"""Where a run is mirrored."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from fedrun.config.config_class import STRICT
from fedrun.experiment.observer import Observer


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Tracking:
    """Whether and where a run is mirrored; it never changes a result. Each option of the group extends this class."""

    def observer(self) -> Observer:
        """What mirrors the run."""
        return Observer()
