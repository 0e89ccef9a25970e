"""The observers of a run, whose errors do not stop it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from fedrun.experiment.observer import Observer
from fedrun.system.errors import short_message

if TYPE_CHECKING:
    from fedrun.experiment.experiment import Experiment

log = logging.getLogger(__name__)


def chosen_observers(experiment: Experiment, parallel_jobs: int) -> list[Observer]:
    """The display and the trackers that an experiment's keys choose.

    Args:
        experiment: the run's experiment.
        parallel_jobs: number of runs on this machine at once; several have no automatic display.

    Raises:
        InputError: a tracker is not installed.
    """
    from rich.console import Console

    from fedrun.runs.display.console import LiveDisplay, PlainLines, display

    trackers = experiment.tracking.observers()
    match experiment.display:
        case "live":
            return [LiveDisplay(Console()), *trackers]
        case "plain":
            return [PlainLines(sys.stdout), *trackers]
        case "auto" if parallel_jobs == 1:
            return [display(sys.stdout), *trackers]
    return trackers


class Observers:
    """Calls several observers. One that raises is removed with a warning."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = list(observers)

    def notify(self, call: Callable[[Observer], None]) -> None:
        """Call every observer, such as ``notify(lambda observer: observer.on_row(row))``."""
        for observer in list(self._observers):
            try:
                call(observer)
            except Exception as error:  # an observer can raise anything
                self._observers.remove(observer)
                _warn(observer, error)
                with suppress(Exception):
                    observer.close()

    def close(self) -> None:
        """Close every observer; none is called again."""
        observers, self._observers = self._observers, []
        for observer in observers:
            try:
                observer.close()
            except Exception as error:
                _warn(observer, error)


def _warn(observer: Observer, error: Exception) -> None:
    name = type(observer).__name__.removesuffix("Observer")
    log.warning("%s failed and is not used any more in this run: %s", name, short_message(error))
