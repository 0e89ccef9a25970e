"""A run's folder: the truth about a run, written as it goes."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedrun.runs.metrics_file import null_for_nan
from fedrun.system.atomic_file import atomic_write
from fedrun.system.errors import InputError

SUMMARY = "summary.json"
CHECKPOINT = "checkpoint.pt"
METRICS = "metrics.jsonl"
MEMORY = "clients.memory"
WRITTEN = (
    SUMMARY,
    CHECKPOINT,
    MEMORY,
    METRICS,
    "clients.parquet",
    "model.safetensors",
    "curves.png",
    "federation.png",
    "run.log",
)
"""The files of a run, in the order in which starting over deletes them."""


def finished(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished run, or None.

    Raises:
        InputError: ``summary.json`` is damaged.
    """
    path = folder / SUMMARY
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}); delete it, or start over with overwrite=true") from None
    if not isinstance(summary, dict) or summary.get("status") != "complete":
        raise InputError(f"{path}: is not the summary of a complete run; delete it, or start over with overwrite=true")
    return {**summary, "folder": str(folder)}  # the folder may have been moved since


def require_writable(folder: Path) -> None:
    """Refuse, before anything slow happens, a folder that could not be made or written. Nothing is made.

    Raises:
        InputError: it could not.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise InputError(f"{there}: is not a folder that can be written; choose another output_dir")


@contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Create the folder and hold it for this process until the block ends, even if the process is killed.

    Raises:
        InputError: it cannot be created, or another process is at work in it.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{folder}: another process is at work on this very run; wait for it or stop it") from None
        yield


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failing write below ``path`` (full disk, read-only folder) into one clear line."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise InputError(
            f"{where}: cannot be written ({error.strerror or error}); make room or choose another output_dir; "
            "what was written so far is kept, and the same command continues the run"
        ) from error


def clear(folder: Path) -> None:
    """Delete a former run's files (and nothing else), the ones that mark it finished first."""
    for name in WRITTEN:
        (folder / name).unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file atomically."""
    with atomic_write(path) as file:
        file.write(f"{json.dumps(null_for_nan(content), indent=2)}\n".encode())
