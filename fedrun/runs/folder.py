"""A run's folder: its files, its lock, and whether the run is finished."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrun.models.saved_tensors import MODEL_FILE
from fedrun.runs.metrics_file import DamagedRunError, null_for_nan
from fedrun.system.atomic_file import atomic_write
from fedrun.system.checksums import CHECKSUMS, checksum_line, damaged_files, write_checksums
from fedrun.system.errors import InputError
from fedrun.system.writing import writing

log = logging.getLogger(__name__)

SUMMARY = "summary.json"
CHECKPOINT = "checkpoint.pt"
METRICS = "metrics.jsonl"
CLIENT_STATES = "clients.memory"
CLIENTS = "clients.parquet"
CURVES = "curves.png"
FEDERATION = "federation.png"
LOG = "run.log"
CONFIG = ".hydra/config.yaml"
OVERRIDES = ".hydra/overrides.yaml"
WRITTEN = (SUMMARY, CHECKSUMS, CHECKPOINT, CLIENT_STATES, METRICS, CLIENTS, MODEL_FILE, CURVES, FEDERATION, LOG)
"""The files of a run, in the order in which starting over deletes them."""

EVENTS = "tensorboard"
"""The folder of TensorBoard's event files: ``tensorboard --logdir outputs`` shows all runs."""

TRACKED = ("wandb", EVENTS)
"""The folders of trackers in a run's own; starting over deletes them, as ``wandb sync`` would upload the old run."""

RESULTS = (CONFIG, OVERRIDES, METRICS, CLIENTS, MODEL_FILE, CURVES, FEDERATION)
"""The files of a finished run that have a checksum, in addition to its summary."""


@dataclass(frozen=True)
class Entries:
    """An object of JSON with any keys and values of one kind."""

    kind: Kind


Kind = type | tuple[type, ...] | Mapping[str, "Kind"] | Entries
"""What a value of JSON is: of a type, of one of several, or an object with certain keys or with :class:`Entries`."""

NUMBER = (int, float)
NUMBER_OR_NULL = (*NUMBER, type(None))

SUMMARISED: Mapping[str, Kind] = {
    "title": str,
    "group": str,
    "dataset": str,
    "strategy": str,
    "overrides": list,
    "seed": int,
    "data": str,
    "rounds": int,
    "cap": int,
    "final": Entries(NUMBER_OR_NULL),
    "best": Entries({"value": NUMBER, "round": int}),
    "rounds_to": Entries((int, type(None))),
    "seconds": NUMBER,
    "versions": dict,
}
"""The keys that every summary has, of all versions of fedrun, and what their values are."""

RECENT: Mapping[str, Kind] = {
    "reported": (str, type(None)),
    "virtual_seconds_to": Entries(NUMBER_OR_NULL),
    "machine": {"processes": int, "threads": int},
    "decisions": Entries(str),
}
"""The keys that summaries of earlier versions lack."""


def has_results(folder: Path) -> bool:
    """Whether a run has been finished; :func:`finished` also checks its files."""
    return os.path.exists(folder / SUMMARY)


def finished(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished run, or None. All its files are compared with their checksums.

    Runs of version 0.1 have no checksums and are not checked. Files may have been deleted.

    Raises:
        DamagedRunError: a file is damaged, or cannot be read.
    """
    path = folder / SUMMARY
    again = f"delete {path} (the same command then writes the results again), or start over with overwrite=true"
    try:
        text = path.read_bytes()
        damaged = damaged_files(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedRunError(f"{error.filename or path}: cannot be read ({error.strerror or error})") from None
    if damaged:
        advice = "restore it, or start over with overwrite=true" if damaged[0].name == METRICS else again
        raise DamagedRunError(f"{damaged[0]}: is damaged (its checksum differs); {advice}")
    try:
        summary = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedRunError(f"{path}: is damaged ({error}); {again}") from None
    if not isinstance(summary, dict) or summary.get("status") != "complete":
        raise DamagedRunError(f"{path}: is not the summary of a complete run; {again}")
    expected = {**SUMMARISED, **{key: kind for key, kind in RECENT.items() if key in summary}}
    if wrong := [key for key, kind in expected.items() if not _is(summary.get(key), kind)]:
        raise DamagedRunError(f"{path}: is damaged ({wrong[0]} is missing or of another type); {again}")
    return {**summary, "folder": str(folder)}  # the folder may have been moved since


def _is(value: Any, kind: Kind) -> bool:
    match kind:
        case Entries():
            return isinstance(value, dict) and all(_is(entry, kind.kind) for entry in value.values())
        case Mapping():
            return isinstance(value, dict) and all(_is(value.get(key), each) for key, each in kind.items())
    return isinstance(value, kind)


def finish(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write the checksums of a complete run and then its summary, which marks the run as finished.

    Raises:
        OSError: a file cannot be written.
    """
    text = f"{json.dumps(null_for_nan(summary), indent=2)}\n".encode()
    write_checksums(folder, RESULTS, [checksum_line(SUMMARY, zlib.crc32(text), len(text))])
    with atomic_write(folder / SUMMARY) as file:
        file.write(text)


def require_writable(folder: Path) -> None:
    """Check, before anything slow happens, that a folder can be created or written. Nothing is created.

    Raises:
        InputError: it cannot.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise InputError(f"{existing}: is not a folder that can be written; choose another output_dir")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create the folder and lock it for this process until the block ends.

    Raises:
        InputError: it cannot be created, or another process is using it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"{error.filename or folder}: cannot be created ({reason}); choose another output_dir"
        ) from error
    with writing(folder):
        lock = (folder / ".lock").open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another process is computing this run; wait for it or stop it") from None
        except OSError as error:  # some network file systems have no locks
            log.warning("%s: cannot be locked (%s); do not start this run twice at once", folder, error.strerror)
        yield


def clear(folder: Path) -> None:
    """Delete a former run's files and its trackers' (and nothing else), the ones that mark it finished first."""
    for name in WRITTEN:
        with writing(folder / name):
            (folder / name).unlink(missing_ok=True)
    for name in TRACKED:
        path = folder / name
        with writing(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)  # of a link, not what it leads to
