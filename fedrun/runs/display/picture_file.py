"""Pictures as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.system.atomic_file import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure atomically, in the format of the file's suffix: ``.png``, ``.pdf`` or ``.svg``. Several processes
    may write the file at the same time.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_write(path, shared=True) as file:
        figure.savefig(file, format=path.suffix.removeprefix("."), dpi=dpi)
