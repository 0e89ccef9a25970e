"""The errors a user is expected to meet."""

from __future__ import annotations

import errno
import os
import re

BAD_INPUT = 2
"""Exit status of a command that an :class:`InputError` ends."""


class InputError(Exception):
    """Something the user gave cannot be used.

    ``str(error)`` is one line that names what is wrong, where, and what is allowed. The command line prints that
    line and exits with status 2; no traceback is shown.
    """


class RunError(Exception):
    """A run that began well cannot go on (a diverged model, say). Printed as one line, exit status 1."""


def foreseen(error: Exception) -> InputError | RunError | None:
    """What is to be said of an error that may come from anywhere: files that cannot be reached, too little memory.

    None of any other error.
    """
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP):
        name = os.fspath(error.filename) if isinstance(error.filename, (str, os.PathLike)) else "a file"
        return InputError(f"{name}: {error.strerror}; allowed: files and folders that can be read")
    text = str(error)
    known = ("can't allocate memory", "out of memory", "Unable to allocate")  # PyTorch on CPUs, on GPUs; NumPy
    if not isinstance(error, MemoryError) and not any(words in text for words in known):
        return None
    wanted = re.search(r"(?:allocate|of) (\d+ bytes|[\d.]+ [KMGT]iB)", text)
    amount = f" for {wanted[1].replace('. ', ' ')} at once" if wanted else ""
    return RunError(
        f"not enough memory{amount}: the data, the model, the batch or the group of clients is too large here"
    )
