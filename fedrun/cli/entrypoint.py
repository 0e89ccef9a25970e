"""What the commands fedrun-data and fedrun-report have in common: their parser, signals and exit status."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from fedrun.config.suggestions import likely_flag
from fedrun.system.closed_output import discard_output
from fedrun.system.errors import BAD_INPUT, RunError, foreseen
from fedrun.system.lazy_import import lazy_import
from fedrun.system.signals import TERMINATING, Stop, describe_stop


class OneLineParser(argparse.ArgumentParser):
    """A parser whose error messages are one line."""

    def error(self, message: str) -> NoReturn:
        likely = likely_flag(message, self.format_usage())
        self.exit(BAD_INPUT, f"{self.prog}: {message}{likely}; {self.prog} --help shows what is allowed\n")


def run_command(command: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run this process's command line, and end the process with the status that the command returns.

    PyTorch is loaded when it is first used, because these commands rarely need it. If the reader of the output closes
    it (``| head``), the command ends with status 0. Ctrl-C and SIGTERM end it without a message.
    """
    stop = Stop()
    stop.handle(signal.SIGINT, *TERMINATING)
    name = Path(sys.argv[0]).name
    lazy_import("torch")
    try:
        try:
            status = command(sys.argv[1:])
        except SystemExit as ended:  # after --help
            status = int(ended.code or 0)
        if sys.stdout is not None:  # closed
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output(sys.stdout)
        status = 0
    except KeyboardInterrupt as error:
        discard_output(sys.stdout)
        _, status = describe_stop(error)
    except UnicodeEncodeError as error:
        lacking = f"{error.encoding} lacks {error.object[error.start]!r}"
        print(f"{name}: the output cannot be written ({lacking}); try PYTHONIOENCODING=utf-8", file=sys.stderr)
        status = BAD_INPUT
    except (OSError, MemoryError, RuntimeError) as error:
        known = None
        if isinstance(error, OSError) and error.filename is None:
            print(f"{name}: the output cannot be written ({error.strerror})", file=sys.stderr)
            discard_output(sys.stdout)
        elif (known := foreseen(error)) is not None:
            print(f"{name}: {known}", file=sys.stderr)
        else:
            raise
        status = 1 if isinstance(known, RunError) else BAD_INPUT
    stop.end()
    sys.exit(status)
