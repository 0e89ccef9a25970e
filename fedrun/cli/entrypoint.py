"""What the commands fedrun-data and fedrun-report have in common: their parser, signals and exit status."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from fedrun.config.suggestions import likely_flag
from fedrun.system.closed_output import discard_output
from fedrun.system.errors import BAD_INPUT, InputError, RunError, expected_error
from fedrun.system.lazy_import import lazy_import
from fedrun.system.signals import TERMINATING, Stop, describe_stop
from fedrun.system.user_path import require_current_folder


class OneLineParser(argparse.ArgumentParser):
    """A parser that raises its errors as an InputError of one line."""

    def error(self, message: str) -> NoReturn:
        reject(message, self.prog, self.format_usage())


def reject(message: str, name: str, usage: str) -> NoReturn:
    """Reject an option of the command ``name``, whose usage lists the known ones.

    Raises:
        InputError: always.
    """
    raise InputError(f"{message}{likely_flag(message, usage)}; {name} --help shows what is allowed")


def run_command(command: Callable[[Sequence[str]], int], name: str) -> NoReturn:
    """Run this process's command line, and end the process with its exit status.

    PyTorch is loaded when it is first used, because these commands rarely need it. The command may catch what Ctrl-C
    and SIGTERM raise, to leave a message.
    """
    stop = Stop()
    stop.handle(signal.SIGINT, *TERMINATING)
    lazy_import("torch")
    status = exit_status(command, name, sys.argv[1:])
    stop.end()
    sys.exit(status)


def exit_status(command: Callable[[Sequence[str]], int], name: str, arguments: Sequence[str]) -> int:
    """Run a command line; report an expected error in one line, which begins with the command's name.

    Returns:
        The status that the command returns, or that of the error. If the reader of the output closes it (``| head``)
        while the command runs, the status is 0.
    """
    status = 0
    try:
        try:
            require_current_folder()
            status = command(arguments)
        except SystemExit as ended:  # after --help
            status = int(ended.code or 0)
        except (InputError, RunError) as error:
            status = error.exit_status
            print(f"{name}: {error}", file=sys.stderr)
        if sys.stdout is not None:  # closed
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        discard_output(sys.stdout)
        return status
    except KeyboardInterrupt as error:
        discard_output(sys.stdout)
        return describe_stop(error)[1]
    except UnicodeEncodeError as error:
        lacking = f"{error.encoding} lacks {error.object[error.start]!r}"
        print(f"{name}: the output cannot be written ({lacking}); try PYTHONIOENCODING=utf-8", file=sys.stderr)
        return BAD_INPUT
    except (OSError, MemoryError, RuntimeError) as error:
        known = None
        if isinstance(error, OSError) and error.filename is None:
            print(f"{name}: the output cannot be written ({error.strerror})", file=sys.stderr)
            discard_output(sys.stdout)
        elif (known := expected_error(error)) is not None:
            print(f"{name}: {known}", file=sys.stderr)
        else:
            raise
        return BAD_INPUT if known is None else known.exit_status
