"""Whether a tracking service's package is installed."""

from __future__ import annotations

from importlib.util import find_spec

from fedrun.system.errors import InputError


def require_installed(package: str) -> None:
    """Check that a package can be imported, without importing it.

    Raises:
        InputError: it is not installed.
    """
    if find_spec(package) is None:
        raise InputError(f"tracking={package}: {package} is not installed; pip install 'fedrun[{package}]'")
