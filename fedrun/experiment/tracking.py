"""Tracking services, which record a run's metrics in addition to its files."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.experiment.observer import Observer


@config_class
class Tracking:
    """No tracking service. It never changes a result.

    A user's tracker extends this class: its fields are the keys of its option, and :meth:`observer` returns an
    :class:`fedrun.experiment.observer.Observer`, which receives every row. An observer that raises is dropped with a
    warning.
    """

    def observer(self) -> Observer:
        """The observer that records one run."""
        return Observer()

    def observers(self) -> list[Observer]:
        """All observers that record one run."""
        return [self.observer()]
