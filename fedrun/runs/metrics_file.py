"""``metrics.jsonl``: a run's evaluated rounds, written as it goes, and read again."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from fedrun.experiment.observer import Row
from fedrun.system.errors import InputError

LARGEST = int(sys.float_info.max)
"""Whole number that a float can still hold."""

TARGETED = "test/accuracy"
"""The metric that targets are about."""


class MetricsFile:
    """``metrics.jsonl``: one object per evaluated round, appended and flushed. NaN and infinities are null.

    Args:
        path: of the file.
        keep_bytes: keep this much of the file and drop what was written after it, by rounds that will be repeated.

    Raises:
        InputError: the file is shorter than that.
    """

    def __init__(self, path: Path, keep_bytes: int) -> None:
        size = path.stat().st_size if path.exists() else 0
        if size < keep_bytes:
            raise InputError(
                f"{path}: has {size} bytes where the checkpoint beside it expects {keep_bytes}; it was cut short; "
                "restore it, or start over with overwrite=true"
            )
        if size > keep_bytes:
            os.truncate(path, keep_bytes)
        self._file: TextIO = path.open("a", encoding="utf-8")
        self.size = keep_bytes

    def append(self, row: Row) -> Row:
        """Write one row; the row as written."""
        clean: dict[str, float | int | None] = null_for_nan(row)
        line = json.dumps(clean) + "\n"
        self._file.write(line)
        self._file.flush()
        self.size += len(line.encode())
        return clean

    def close(self) -> None:
        with suppress(OSError):  # what could not be written is tried once more here; `append` has told
            self._file.close()


def read_rows(path: Path) -> list[Row]:
    """The rows of a ``metrics.jsonl``, in order.

    NaN and infinity may be written as the literals ``NaN``, ``Infinity`` and ``-Infinity``, or as null. A last line
    that was not finished (the run was killed while writing it) is left out.

    Raises:
        InputError: the file cannot be read, or a line of it is not a row.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a run's metrics.jsonl") from error
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # nothing ends this line: it was cut while being written
                break
            raise InputError(f"{path}, line {number}: not a JSON object ({error})") from error
        if problem := flaw(row, rows[-1] if rows else None):
            raise InputError(f"{path}, line {number}: {problem}")
        rows.append(row)
    return rows


def flaw(row: Any, previous: Row | None) -> str | None:
    """What keeps a parsed line from being the row after ``previous``, or None."""
    if not isinstance(row, dict):
        return f"a {type(row).__name__} where a JSON object is expected"
    if type(row.get("round")) is not int:
        return f"round is {row.get('round')!r}; a whole number is expected"
    for key, value in row.items():
        if value is not None and type(value) not in (int, float):
            return f"{key} is {value!r}; a number or null is expected"
        if type(value) is int and abs(value) > LARGEST:
            return f"{key} is a whole number of {len(str(abs(value)))} digits; one that fits a float is expected"
    if previous is not None and row["round"] <= (before := previous["round"] or 0):
        return f"round {row['round']} follows round {before}; rounds must ascend"
    return None


def evaluated_rounds(rows: Sequence[Row]) -> list[int]:
    """The evaluated rounds."""
    return [int(row["round"] or 0) for row in rows]


def series(rows: Sequence[Row], key: str) -> list[float]:
    """A metric's value in every evaluated round, NaN where it has none."""
    return [math.nan if (value := row.get(key)) is None else float(value) for row in rows]


def null_for_nan(value: Any) -> Any:
    """The same containers with null for NaN and infinities, which JSON does not know."""
    if isinstance(value, Mapping):
        return {key: null_for_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [null_for_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
