"""The users' own tables: CSV or Parquet, one sample per row, with columns for targets, client and split."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, DatasetConfig, Scaled, Users
from fedrun.data.datasets.fingerprint import fingerprint
from fedrun.data.datasets.regular_file import stat_regular
from fedrun.data.tasks.base import Task
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import pyarrow

SPLITS = ("train", "test")


@config_class
class SampleTable(DatasetConfig):
    """A table with columns of targets, numeric feature columns and, optionally, a client and a split column.

    Clients are users, sorted by name: as numbers if all names are integers, otherwise as texts. A client with rows in
    both splits is a training and a test user, as in LEAF's split by sample. Within a client rows keep their order.

    Attributes:
        file: the table, ``.csv`` with a header in UTF-8 or ``.parquet``.
        client: the column of clients; None if there are no clients.
        split: the column with ``train`` or ``test``; None if all rows are training samples.
        features: number of feature columns, which are all other columns. The model is built for it before the table is
            read.
        standardise: subtract each feature's mean over the training rows and divide by its standard deviation; features
            that do not vary become 0.
    """

    file: str
    client: str | None
    split: str | None
    features: Annotated[int, Ge(1)]
    standardise: bool

    @property
    @abstractmethod
    def target_columns(self) -> tuple[str, ...]:
        """The columns of the targets."""

    @abstractmethod
    def targets(self, path: Path, columns: Sequence[np.ndarray], training: np.ndarray) -> tuple[torch.Tensor, Task]:
        """The dataset's targets ``[n, ...]`` and its task.

        Args:
            path: of the table, for messages.
            columns: the values of :attr:`target_columns`, float64 ``[n]`` each, all finite.
            training: which rows are training samples, bool ``[n]``.

        Raises:
            InputError: a value is not allowed.
        """

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """One name per class, or per number that is predicted."""

    def load(self) -> Dataset:
        """Read the table; inputs are float32 ``[n, features]``.

        Raises:
            InputError: the table is missing, damaged or lacks a column, or a value in it cannot be used.
        """
        path = Path(self.file).expanduser()
        table = read_table(path, () if self.client is None else (self.client,))
        if repeated := [column for column in table.column_names if table.column_names.count(column) > 1]:
            raise InputError(
                f"{path} has {table.column_names.count(repeated[0])} columns named {repeated[0]!r}; allowed: one"
            )
        special = [*self.target_columns, *(column for column in (self.client, self.split) if column is not None)]
        for column in special:
            if table.column_names.count(column) != 1:
                raise InputError(f"{path} has no single column {column!r}; it has {', '.join(table.column_names)}")
        names = [column for column in table.column_names if column not in special]
        if not names:
            raise InputError(f"{path} has no feature columns besides {', '.join(special)}; allowed: at least one")
        if len(names) != self.features:
            raise InputError(f"{path} has {len(names)} feature columns; set dataset.features={len(names)}")
        if not table.num_rows:
            raise InputError(f"{path} has no rows")
        inputs = np.stack([_numbers(path, table, column) for column in names], axis=1)
        test = self._test(path, table)
        if test.all():
            raise InputError(f"{path}: column {self.split} has no row 'train'")
        values = [_numbers(path, table, column) for column in self.target_columns]
        targets, task = self.targets(path, values, ~test)
        if self.standardise:
            inputs = standardised(inputs, ~test)
        clients, client_names = self._clients(path, table)
        order = np.lexsort((clients, test))  # training rows first, by client; the sort is stable
        group = (test * len(client_names) + clients)[order]
        present, sizes = np.unique(group, return_counts=True)
        offsets = np.cumsum([0, *sizes])
        users = Users(
            tuple(client_names[number % len(client_names)] for number in present),
            torch.from_numpy(offsets),
            int((present < len(client_names)).sum()),
        )
        with np.errstate(over="ignore"):
            stored = inputs[order].astype(np.float32)
        targets = targets[torch.from_numpy(order)]
        if not np.isfinite(stored).all():
            column = names[int(np.argmin(np.isfinite(stored).all(0)))]
            raise InputError(f"{path}: column {column} has numbers beyond float32; set dataset.standardise=true")
        return Dataset(
            spec=replace(self.spec, task=task),
            encoding=Scaled(divisor=1.0),
            inputs=torch.from_numpy(stored),
            targets=targets,
            train_size=int((~test).sum()),
            users=None if self.client is None else users,
            class_names=self.class_names,
            fingerprint=fingerprint([users.training, *users.names, offsets, stored, targets.numpy()]),
        )

    def _test(self, path: Path, table: pyarrow.Table) -> np.ndarray:
        """Which rows are test samples, bool ``[n]``."""
        if self.split is None:
            return np.zeros(table.num_rows, bool)
        splits = table.column(self.split).to_pylist()
        for row, split in enumerate(splits, start=1):
            if split not in SPLITS:
                raise InputError(f"{path}: row {row} has {self.split} {split!r}; allowed: train, test")
        return np.array([split == "test" for split in splits])

    def _clients(self, path: Path, table: pyarrow.Table) -> tuple[np.ndarray, list[str]]:
        """Each row's client number, int64 ``[n]``, and the clients' names; a single client if there is no column."""
        if self.client is None:
            return np.zeros(table.num_rows, np.int64), ["all"]
        values = table.column(self.client).to_pylist()
        for row, value in enumerate(values, start=1):
            if not isinstance(value, (str, int)) or value == "":
                raise InputError(f"{path}: row {row} has {self.client} {value!r}; clients are texts or integers")
        ordered = sorted(set(values), key=int if all(map(_is_number, values)) else None)  # a column has one type
        numbers = {value: number for number, value in enumerate(ordered)}
        return np.array([numbers[value] for value in values]), [str(value) for value in ordered]


def standardised(inputs: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Features ``[n, d]`` with mean 0 and standard deviation 1 over the training rows (bool ``[n]``)."""
    train = inputs[training]
    largest = np.abs(train).max(0)
    scale = np.where(largest > 0, largest, 1.0)  # so that no square overflows
    train, scaled = train / scale, inputs / scale
    varies = train.max(0) > train.min(0)  # the standard deviation of a constant may be above 0 by rounding
    result: np.ndarray = (scaled - train.mean(0)) / np.where(varies, train.std(0), np.inf)
    return result


def _is_number(name: str | int) -> bool:
    """Whether a client's name is an integer in its usual form: 7, but not 007, which may be another client."""
    return isinstance(name, int) or (name.removeprefix("-").isdecimal() and str(int(name)) == name)


def read_table(path: Path, texts: Sequence[str] = ()) -> pyarrow.Table:
    """A ``.csv`` or ``.parquet`` file in memory.

    Args:
        path: of the file.
        texts: columns of a CSV file that are read as texts even if they could be numbers.

    Raises:
        InputError: the file is missing, damaged or of another kind.
    """
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    as_written = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(texts, pyarrow.string()))
    readers: dict[str, Any] = {
        ".csv": partial(pyarrow.csv.read_csv, convert_options=as_written),
        ".parquet": pyarrow.parquet.read_table,
    }
    if path.suffix not in readers:
        raise InputError(f"dataset.file={path}: allowed: a file whose name ends in {' or '.join(readers)}")
    try:
        if path.exists():
            stat_regular(path)
        table = readers[path.suffix](path)
        _ = table.column_names  # names are decoded here
        return table
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())
        raise InputError(f"{path} cannot be read: {reason}") from error


def _numbers(path: Path, table: pyarrow.Table, column: str) -> np.ndarray:
    """A column as float64 ``[n]``, all finite."""
    import pyarrow

    values = table.column(column)
    kinds = pyarrow.types
    if not (kinds.is_integer(values.type) or kinds.is_floating(values.type) or kinds.is_boolean(values.type)):
        raise InputError(f"{path}: column {column} has values of type {values.type}; it must have numbers only")
    numbers: np.ndarray = values.cast(pyarrow.float64(), safe=False).to_numpy()  # missing values become NaN
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        raise InputError(f"{path}: row {row + 1} has no finite number in column {column}")
    return numbers
