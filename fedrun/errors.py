"""The errors a user is expected to meet."""

BAD_INPUT = 2
"""Exit status of a command that an :class:`InputError` ends."""


class InputError(Exception):
    """Something the user gave cannot be used.

    ``str(error)`` is one line that names what is wrong, where, and what is allowed. The command line prints that
    line and exits with status 2; no traceback is shown.
    """


class RunError(Exception):
    """A run that began well cannot go on (a diverged model, say). Printed as one line, exit status 1."""
