"""Errors that are reported to the user in one line."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_path

from fedrun.system.signals import stop_behind

BAD_INPUT = 2
"""Exit status of a command that ends with an :class:`InputError`."""

FAILED = 1
"""Exit status of a command that ends with a :class:`RunError`, or with an unexpected error."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, a used-up quota and a limit of file sizes."""

LONGEST_LINE = 4000
"""Largest number of characters of a message; the middle of a longer one is omitted."""


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """Escape line breaks and control characters as in Python's strings, so that the text is one line.

    Args:
        text: any text, such as a user's value or another library's message.
        longest: largest number of characters; the middle of a longer text is replaced by " ... ".
    """
    if not text.isprintable():
        text = "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
        )
    if len(text) <= longest:
        return text
    part = (longest - 5) // 2
    return f"{text[:part]} ... {text[-part:]}"


def short_message(error: Exception) -> str:
    """Another library's error on one line of readable length, or its type if it has no message."""
    return one_line(" ".join(str(error).split()) or type(error).__name__, 200)


class InputError(Exception):
    """A value, file or argument from the user cannot be used.

    ``str(error)`` is one line that names what is wrong, where, and what is allowed. The command line prints that
    line and exits with status 2; no traceback is shown.
    """

    exit_status: int = BAD_INPUT

    def __str__(self) -> str:
        return one_line(super().__str__())


class RunError(Exception):
    """A run cannot continue, for example because its model diverged. Printed as one line, exit status 1."""

    exit_status: int = FAILED

    def __str__(self) -> str:
        return one_line(super().__str__())


class Defect(Exception):  # noqa: N818 - the usual word for it
    """Marks an unexpected error, which is its ``__cause__``."""


def show_defect(error: BaseException) -> None:
    """Print an unexpected error with its own traceback, and whether it is in fedrun or in code that fedrun calls."""
    traceback.print_exception(error)
    package = str(Path(__file__).parents[1])
    libraries = tuple(get_path(name) for name in ("stdlib", "purelib", "platlib"))
    frames = traceback.extract_tb(error.__traceback__)
    files = [(frame.filename, frame.lineno) for frame in frames if Path(frame.filename).is_file()]  # not <string>
    known = [place for place in files if place[0].startswith(package) or not place[0].startswith(libraries)]
    if known and not known[-1][0].startswith(package):
        last = "the mistake is in {}, line {}".format(*known[-1])
    else:
        last = "please report this, unless code of your own has caused it"
    print(f"fedrun: {last}", file=sys.stderr, flush=True)


@contextmanager
def defects() -> Iterator[None]:
    """Raise an unexpected error of the block as a :class:`Defect`, so that it is not mistaken for a wrong input.

    An error that was raised while the process was being stopped is not changed.
    """
    try:
        yield
    except Defect:
        raise
    except Exception as error:  # of every kind; it is raised again
        if stop_behind(error) is not None or expected_error(error) is not None:
            raise
        raise Defect from error


def expected_error(error: Exception) -> InputError | RunError | None:
    """An expected error with its message of one line: a wrong input, a run that cannot continue, an inaccessible file,
    a full disk or too little memory. None for others.
    """
    if isinstance(error, (InputError, RunError)):
        return error
    if isinstance(error, OSError):
        name = os.fspath(error.filename) if isinstance(error.filename, (str, os.PathLike)) else "a file"
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP):
            return InputError(f"{name}: {error.strerror}; allowed: files and folders that can be read")
        if error.errno in NO_ROOM:
            return RunError(f"{name}: {error.strerror}; make room, and repeat the command")
    text = str(error)
    if "Could not determine home directory" in text:  # pathlib's
        return InputError("a path begins with ~ and the name of a user without a home folder; allowed: the whole path")
    known = ("can't allocate memory", "out of memory", "Unable to allocate")  # PyTorch on CPUs, on GPUs; NumPy
    if not isinstance(error, MemoryError) and not any(words in text for words in known):
        return None
    wanted = re.search(r"(?:allocate|of) (\d+ bytes|[\d.]+ [KMGT]iB)", text)
    amount = f" for {wanted[1].replace('. ', ' ')} at once" if wanted else ""
    return RunError(f"not enough memory{amount}: the data, the model, the batch or the group of clients is too large")
