"""A run continues if its standard output or error is closed, as in ``fedrun -m seed=0,1 | head`` or on a full disk.

The results are in the run's files.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast


def discard_output(stream: TextIO | None) -> None:
    """Discard all further output to a stream, also what Python would write at its end; None: it is closed already."""
    if stream is None:
        return
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, stream.fileno())
    os.close(null_device)


class ClosableStream:
    """A stream that discards all output after the first failed write or when it is closed, without an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return len(text) if self._stream.closed else self._stream.write(text)
        except OSError:
            discard_output(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            if not self._stream.closed:
                self._stream.flush()
        except OSError:
            discard_output(self._stream)


def ignore_closed_output() -> None:
    """Continue without an error if the reader of the standard output or error closes it, or never opened it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # in a process started without it
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
        if not isinstance(stream, ClosableStream):
            setattr(sys, name, cast(TextIO, ClosableStream(stream)))
