"""Packages that fedrun needs for some options only; pip installs them with an extra."""

from __future__ import annotations

from importlib.util import find_spec

from fedrun.system.errors import InputError


def require_package(package: str, extra: str, key: str) -> None:
    """Check that a package can be imported, without importing it.

    Args:
        package: its name.
        extra: fedrun's extra that installs it.
        key: the setting that needs it.

    Raises:
        InputError: it is not installed.
    """
    if find_spec(package) is None:
        raise InputError(f"{key}: {package} is not installed; pip install 'fedrun[{extra}]'")
