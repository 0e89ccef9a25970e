"""The observers of a run, which must not harm it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from fedrun.experiment.observer import Observer

log = logging.getLogger(__name__)


class Observers:
    """Calls several observers. One that raises is removed with a warning."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = list(observers)

    def notify(self, call: Callable[[Observer], None]) -> None:
        """Call every observer, such as ``notify(lambda observer: observer.on_row(row))``."""
        for observer in list(self._observers):
            try:
                call(observer)
            except Exception as error:  # whatever it raises
                self._observers.remove(observer)
                log.warning("%s failed and is ignored from now on: %s", type(observer).__name__, error)
                with suppress(Exception):
                    observer.close()

    def close(self) -> None:
        """Close every observer; none is called again."""
        observers, self._observers = self._observers, []
        for observer in observers:
            try:
                observer.close()
            except Exception as error:
                log.warning("%s failed and is ignored from now on: %s", type(observer).__name__, error)
