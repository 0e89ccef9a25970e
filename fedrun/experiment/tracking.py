"""Where a run is mirrored."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.experiment.observer import Observer


@config_class
class Tracking:
    """Whether and where a run is mirrored; it never changes a result. Each option of the group extends this class."""

    def observer(self) -> Observer:
        """What mirrors the run."""
        return Observer()
