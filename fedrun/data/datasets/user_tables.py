"""Tables with one sample in a row and a column that names the user, such as the Parquet files of the Hugging Face hub.

Rows may have any order. They are streamed, a few thousand at a time, so a user's samples come in several pieces.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedrun.data.datasets.leaf import Decoder, FileFormat
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import pyarrow.parquet

ROWS = 4096
"""Number of rows in memory at a time."""


class ParquetTable(FileFormat):
    """Parquet files with a column of users, one of samples and one of labels.

    Columns of Hugging Face's type ``ClassLabel`` have numbers, and the file has their class names; they are translated
    to the dataset's numbers by name. Boolean labels become 0 and 1.
    """

    suffix: ClassVar[str] = ".parquet"

    def __init__(self, decoder: Decoder, *, user: str, x: str, y: str, class_names: Sequence[str]) -> None:
        """
        Args:
            decoder: receives the values of the columns x and y as Python objects.
            user: the column of users, strings or integers.
            x: the column of samples.
            y: the column of labels.
            class_names: the dataset's class names.
        """
        super().__init__(decoder)
        self._user, self._x, self._y = user, x, y
        self._class_names = class_names

    def sizes(self, paths: list[Path]) -> dict[str, int]:
        sizes: Counter[str] = Counter()
        for path in paths:
            with _reading(path) as file:
                for (users,) in _batches(path, file, [self._user]):
                    sizes.update(_names(path, self._user, users))
        return dict(sizes)

    def pieces(self, path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
        with _reading(path) as file:
            number = self._class_numbers(path, file)
            for users, x, y in _batches(path, file, [self._user, self._x, self._y]):
                labels = y if number is None else [number.get(label, label) for label in y]
                yield from grouped(_names(path, self._user, users), x, labels)

    def _class_numbers(self, path: Path, file: pyarrow.parquet.ParquetFile) -> dict[Any, int] | None:
        """The dataset's number for each label in the file; None if they are the same, or there is no such column."""
        if len(file.schema_arrow.get_all_field_indices(self._y)) != 1:
            return None
        if str(file.schema_arrow.field(self._y).type) == "bool":
            return {False: 0, True: 1}
        metadata = (file.schema_arrow.metadata or {}).get(b"huggingface")
        try:
            names = json.loads(metadata)["info"]["features"][self._y]["names"] if metadata else None
        except (ValueError, KeyError, TypeError, RecursionError):
            names = None
        if names is None:
            return None
        numbers = {name: number for number, name in enumerate(self._class_names)}
        if unknown := [name for name in names if name not in numbers]:
            raise InputError(f"{path}: column {self._y} has a class {unknown[0]!r}, which this dataset does not have")
        return {number: numbers[name] for number, name in enumerate(names)}


def grouped(users: Iterable[str], x: Sequence[Any], y: Sequence[Any]) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """The samples and the labels of each user, in the order of the rows.

    Args:
        users: each row's user.
        x: each row's sample.
        y: each row's label.
    """
    rows: dict[str, list[int]] = {}
    for row, user in enumerate(users):
        rows.setdefault(user, []).append(row)
    for user, user_rows in rows.items():
        yield user, [x[row] for row in user_rows], [y[row] for row in user_rows]


def _names(path: Path, column: str, users: list[Any]) -> list[str]:
    """Users as strings."""
    for user in users:
        if not isinstance(user, (str, int)):
            raise InputError(f"{path}: column {column} has {user!r}; users are strings or integers")
    return [str(user) for user in users]


def _batches(path: Path, file: pyarrow.parquet.ParquetFile, columns: list[str]) -> Iterator[list[list[Any]]]:
    """The columns as Python objects, for one group of rows after another."""
    names = file.schema_arrow.names
    for column in columns:
        if (count := names.count(column)) != 1:
            found = f"{count} columns" if count else "no column"
            raise InputError(f"{path} has {found} {column}; it has {', '.join(names)}")
    for batch in file.iter_batches(batch_size=ROWS, columns=columns):
        yield [batch.column(column).to_pylist() for column in columns]


@contextmanager
def _reading(path: Path) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a file; an error of the file system or of pyarrow becomes one line that names the file."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{path} is not a Parquet file that can be read: {reason}") from error
