"""Runs whose output goes nowhere any more, as in ``fedrun -m seed=0,1 | head`` or into a file on a full disk: they go
on, as their own files are what is read.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast


class ClosedStdout:
    """A stream whose writers never hear that nobody takes what they write; from then on it is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._forget()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._forget()

    def _forget(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def ignore_closed_stdout() -> None:
    """From now on, whoever stops reading the standard output ends nothing."""
    if not isinstance(sys.stdout, ClosedStdout):
        sys.stdout = cast(TextIO, ClosedStdout(sys.stdout))
