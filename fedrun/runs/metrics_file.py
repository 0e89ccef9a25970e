"""Write and read ``metrics.jsonl``: a run's evaluated rounds."""

from __future__ import annotations

import json
import math
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrun.data.targets import Target
from fedrun.evaluation.rounds_to_target import first_hit
from fedrun.experiment.observer import Row, round_of
from fedrun.system.checksums import crc32_of
from fedrun.system.errors import InputError

LARGEST = int(sys.float_info.max)
"""The largest whole number that a float can represent."""


class DamagedRunError(InputError):
    """A file of a run cannot be read, or differs from what fedrun wrote."""


@dataclass(frozen=True)
class Written:
    """How much of a metrics file belongs to a checkpoint.

    Attributes:
        size: bytes.
        crc32: the checksum of these bytes.
    """

    size: int = 0
    crc32: int = 0


class MetricsFile:
    """``metrics.jsonl``: one object per evaluated round, appended and flushed. NaN and infinities are null.

    Attributes:
        written: the file's content so far.

    Args:
        path: the metrics file.
        kept: the part of the file that belongs to the checkpoint. The rows after it are removed, because their rounds
            will be repeated.

    Raises:
        InputError: the file is shorter than that, or its content differs.
    """

    def __init__(self, path: Path, kept: Written) -> None:
        size = path.stat().st_size if path.exists() else 0
        if size < kept.size:
            raise InputError(
                f"{path}: has {size} bytes; the checkpoint expects {kept.size}; restore the file, or start over with "
                "overwrite=true"
            )
        if size:
            with path.open("rb") as file:
                if crc32_of(file, kept.size) != kept.crc32:
                    raise InputError(
                        f"{path}: is damaged (its checksum differs); restore the file, or start over with "
                        "overwrite=true"
                    )
        if size > kept.size:
            os.truncate(path, kept.size)
        self._file = path.open("ab")
        self.written = kept

    def append(self, row: Row) -> Row:
        """Write one row; return it as written."""
        clean: dict[str, float | int | None] = null_for_nan(row)
        line = f"{json.dumps(clean)}\n".encode()
        self._file.write(line)
        self._file.flush()
        self.written = Written(self.written.size + len(line), zlib.crc32(line, self.written.crc32))
        return clean

    def sync(self) -> None:
        """Wait until the file is on the disk: a checkpoint must not survive a power failure that its metrics do not."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):  # closing tries to write again; :meth:`append` has reported the error
            self._file.close()


def read_rows(path: Path) -> list[Row]:
    """The rows of a ``metrics.jsonl``, in order.

    NaN and infinity may be written as the literals ``NaN``, ``Infinity`` and ``-Infinity``, or as null. A last line
    that was not finished (the run was killed while writing it) is left out.

    Raises:
        DamagedRunError: the file is missing or cannot be read, or a line is not a row.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise DamagedRunError(f"{path}: is missing; restore it, or start over with overwrite=true") from None
    except OSError as error:
        raise DamagedRunError(f"{path}: cannot be read ({error.strerror}); expected a run's metrics.jsonl") from error
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # without a line end: the line was cut while being written
                break
            raise DamagedRunError(f"{path}, line {number}: not a JSON object ({error})") from error
        if problem := flaw(row, rows[-1] if rows else None):
            raise DamagedRunError(f"{path}, line {number}: {problem}")
        rows.append(row)
    return rows


def flaw(row: Any, previous: Row | None) -> str | None:
    """Why a parsed line cannot be the row after ``previous``; None if it can."""
    if not isinstance(row, dict):
        return f"a {type(row).__name__} where a JSON object is expected"
    if type(row.get("round")) is not int:
        return f"round is {row.get('round')!r}; a whole number is expected"
    for key, value in row.items():
        if value is not None and type(value) not in (int, float):
            return f"{key} is {value!r}; a number or null is expected"
        if type(value) is int and abs(value) > LARGEST:
            return f"{key} is a whole number of {len(str(abs(value)))} digits; one that fits a float is expected"
    if previous is not None and row["round"] <= (before := round_of(previous)):
        return f"round {row['round']} follows round {before}; rounds must ascend"
    return None


def evaluated_rounds(rows: Sequence[Row]) -> list[int]:
    """The evaluated rounds."""
    return [round_of(row) for row in rows]


def series(rows: Sequence[Row], key: str) -> list[float]:
    """A metric's value in every evaluated round; NaN if it has none."""
    return [math.nan if (value := row.get(key)) is None else float(value) for row in rows]


def round_reached(rows: Sequence[Row], target: Target) -> int | None:
    """The first evaluated round at which a target was reached; None if it was not."""
    return first_hit(evaluated_rounds(rows), series(rows, target.metric), target)


def null_for_nan(value: Any) -> Any:
    """The same containers with null for NaN and infinities, which JSON cannot express."""
    if isinstance(value, Mapping):
        return {key: null_for_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [null_for_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
