"""What fedrun-data and fedrun-report share as commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from fedrun.deferred import defer
from fedrun.errors import BAD_INPUT


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; {self.prog} --help shows what is allowed\n")


def carry_out(command: Callable[[Sequence[str]], int]) -> NoReturn:
    """Carry out this process's command line, and end the process with the status that the command returns.

    PyTorch is loaded when it is first used: most of what these commands do needs none. Whoever stops reading the
    output (``| head``) has seen enough, and the command ends.
    """
    defer("torch")
    try:
        status = command(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)
