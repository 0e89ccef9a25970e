"""Where a run's metrics are recorded besides its files."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.experiment.observer import Observer


@config_class
class Tracking:
    """No tracking service. It never changes a result. Each option of the group extends this class."""

    def observer(self) -> Observer:
        """The observer that records the run."""
        return Observer()
