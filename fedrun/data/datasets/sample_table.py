"""The users' own tables: CSV or Parquet, one sample per row, with columns for targets, client and split."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
from annotated_types import Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, DatasetConfig, Encoding, Scaled, Spec, Standardised
from fedrun.data.datasets.regular_file import ends_in_quoted_text, stat_regular
from fedrun.data.datasets.table_columns import ColumnKeys, Columns, textual
from fedrun.data.datasets.user_order import by_user, numbered
from fedrun.data.tasks.base import Task
from fedrun.system.errors import InputError, one_line
from fedrun.system.fingerprint import fingerprint
from fedrun.system.user_path import user_path

if TYPE_CHECKING:
    import pyarrow

SPLITS = ("train", "test")

SEPARATED = (".csv", ".tsv")
"""Suffixes of text files."""
DELIMITERS = (b",", b";", b"\t")
LONGEST_ROW = 2**20
"""Bytes of the file that are read to find the delimiter in its row of names."""

AUTO_TEST_SHARE = 0.2
"""The share of the test rows of a table with neither splits nor clients, with ``test_share=auto``."""


@dataclass(frozen=True)
class TableHead:
    """What is known about a table before its samples are read.

    Attributes:
        columns: the columns' names with their roles.
        spec: shape and classes; the task without the training rows' scale.
        class_names: one name per class, or per number that is predicted.
        labels: the values of the label column in the order of their classes; empty without classes.
    """

    columns: Columns
    spec: Spec
    class_names: tuple[str, ...]
    labels: tuple[str | int, ...] = ()

    def note(self, drawn: int) -> str:
        """What was taken as what, in one line.

        Args:
            drawn: how many rows were drawn for the test.
        """
        columns = self.columns
        classes = [f"{label}={number}" for number, label in enumerate(self.labels)]
        named = f" ({_listed(classes, 10)})" if self.labels != tuple(range(len(classes))) else ""
        count = len(columns.features)
        inputs = f"{count} {'column' if count == 1 else 'columns'} ({_listed(columns.features, 5)})"
        words = [
            f"predicts {', '.join(columns.targets)}{named} from {inputs}",
            f"clients: {columns.client or 'none'}",
            f"split: {columns.split or 'none'}",
        ]
        if columns.row_numbers:
            words.append(f"row numbers, left out: {', '.join(name or repr(name) for name in columns.row_numbers)}")
        if drawn:
            words.append(f"{drawn:,} random rows for the test")
        return one_line("; ".join(words))


def _listed(names: Sequence[str], most: int) -> str:
    """The first of these names, up to ``most``."""
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


@config_class
class SampleTable(DatasetConfig):
    """A table with columns of targets, numeric feature columns and, optionally, a client and a split column.

    Clients are users, sorted by name: as numbers if all names are integers, otherwise as strings. A client with rows in
    both splits is a training and a test user, as in LEAF's split by sample. Within a client rows keep their order.

    Attributes:
        file: the table: ``.csv`` or ``.tsv`` in UTF-8 with a row of names, separated by comma, semicolon or tab, or
            ``.parquet``.
        client: the column of clients; ``auto``: the one with such a name, if there is one; None: rows have no clients.
        split: the column with ``train`` or ``test``; ``auto``: as for ``client``; None: there is none.
        test_share: share of the rows, drawn with seed 0, that are test samples if no column has splits; ``auto``:
            :data:`AUTO_TEST_SHARE` if no column has clients either, otherwise None; None: all rows are for training.
        drop: columns that are not used. All others are features.
        standardise: the network's inputs have mean 0 and standard deviation 1 over the training rows
            (:class:`fedrun.data.datasets.base.Standardised`): those that are not test samples by ``split`` and
            ``test_share``, also of clients that the partition holds out.
    """

    file: str
    client: str | None
    split: str | None
    test_share: Annotated[float, Gt(0), Lt(1)] | Literal["auto"] | None
    drop: tuple[str, ...]
    standardise: bool

    @property
    @abstractmethod
    def keys(self) -> ColumnKeys:
        """The configuration's keys for the columns."""

    @abstractmethod
    def head(self, path: Path, table: pyarrow.Table, columns: Columns) -> TableHead:
        """The columns of a table, with the task and the outputs.

        Raises:
            InputError: the target columns cannot be used.
        """

    @abstractmethod
    def targets(
        self, path: Path, table: pyarrow.Table, head: TableHead, training: np.ndarray
    ) -> tuple[torch.Tensor, Task]:
        """The dataset's targets ``[n, ...]`` and its task.

        Args:
            path: path of the table, for messages.
            table: its content.
            head: the table's head, with the roles of its columns.
            training: which rows are training samples, bool ``[n]``.

        Raises:
            InputError: a value is not allowed.
        """

    @property
    def path(self) -> Path:
        return user_path(self.file, "dataset.file")

    @property
    def spec(self) -> Spec:
        """Shape and classes. The table is read for them once while the file is unchanged."""
        path = self.path
        return head_of(self, path.stat().st_mtime_ns if path.exists() else 0).spec

    def read(self) -> pyarrow.Table:
        """The file's content.

        Raises:
            InputError: the file is missing or damaged, or lacks a column.
        """
        path = self.path
        table = read_table(path)
        if path.suffix not in SEPARATED or not table.num_rows:
            return table
        columns = self.keys.columns(path, table)
        if columns.client is not None and not textual(table, columns.client):  # 007 is another client than 7
            table = as_written(path, table, columns.client)
        return table

    def described(self, table: pyarrow.Table, path: Path) -> TableHead:
        """The roles of a table's columns.

        Raises:
            InputError: the table is empty, or a column is missing or cannot be used.
        """
        if not table.num_rows:
            raise InputError(f"{path} has no rows")
        return self.head(path, table, self.keys.columns(path, table))

    def load(self) -> Dataset:
        """Read the table, see :meth:`dataset`.

        Raises:
            InputError: the table is missing, damaged or lacks a column, or a value in it cannot be used.
        """
        return self.dataset(self.read(), self.path)

    def dataset(self, table: pyarrow.Table, path: Path) -> Dataset:
        """The samples in a table; inputs are its numbers ``[n, features]``, float64 if they are standardised, otherwise
        float32.

        Args:
            table: its content.
            path: path of its file, for messages.

        Raises:
            InputError: the table lacks a column, or a value in it cannot be used.
        """
        head = self.described(table, path)
        columns = head.columns
        inputs = np.stack([numbers(path, table, column) for column in columns.features], axis=1)
        test = self._test(path, table, columns)
        targets, task = self.targets(path, table, head, ~test)
        encoding: Encoding = Standardised.over(inputs[~test]) if self.standardise else Scaled(divisor=1.0)
        clients, client_names = _clients(path, table, columns.client)
        order, users = by_user(clients, client_names, test)
        stored = torch.from_numpy(inputs[order])
        targets = targets[torch.from_numpy(order)]
        encoded = encoding(stored)
        if not encoded.isfinite().all():
            column = columns.features[int(encoded.isfinite().all(0).byte().argmin())]
            if self.standardise:
                raise InputError(
                    f"{path}: column {column} has a number more than 3.4e38 (float32) standard deviations of the "
                    "training rows from their mean; allowed: nearer numbers"
                )
            raise InputError(f"{path}: column {column} has numbers beyond float32; set dataset.standardise=true")
        return Dataset(
            spec=replace(head.spec, task=task),
            encoding=encoding,
            inputs=stored if self.standardise else encoded,
            targets=targets,
            train_size=int((~test).sum()),
            users=None if columns.client is None else users,
            class_names=head.class_names,
            fingerprint=fingerprint(
                [users.training, *users.names, users.offsets.numpy(), encoded.numpy(), targets.numpy()]
            ),
            note=head.note(0 if columns.split else int(test.sum())),
        )

    def _test(self, path: Path, table: pyarrow.Table, columns: Columns) -> np.ndarray:
        """Which rows are test samples, bool ``[n]``."""
        if columns.split is not None:
            if self.test_share not in ("auto", None):
                raise InputError(
                    f"dataset.test_share={self.test_share}, but column {columns.split} of {path} has splits; "
                    f"allowed: auto or null; or dataset.split=null dataset.drop=[{columns.split}]"
                )
            return _published(path, table, columns.split)
        share = self.test_share
        if share == "auto":
            share = AUTO_TEST_SHARE if columns.client is None else None
        test = np.zeros(table.num_rows, bool)
        if share is not None:
            count = round(share * table.num_rows)
            if not 0 < count < table.num_rows:
                raise InputError(
                    f"{path}: dataset.test_share={share:g} of {table.num_rows} rows are {count} test samples; "
                    f"allowed: 1 to {table.num_rows - 1}, or null"
                )
            test[np.random.default_rng(0).permutation(table.num_rows)[:count]] = True
        return test


@cache
def head_of(config: SampleTable, modified: int) -> TableHead:
    """The roles of a table's columns; ``modified``: the time of its file's last change."""
    return config.described(config.read(), config.path)


def _published(path: Path, table: pyarrow.Table, column: str) -> np.ndarray:
    """Which rows are test samples by a column of splits, bool ``[n]``."""
    splits = table.column(column).to_pylist()
    for row, split in enumerate(splits, start=1):
        if split not in SPLITS:
            raise InputError(f"{path}: row {row} has {column} {split!r}; allowed: train, test")
    test = np.array([split == "test" for split in splits])
    if test.all():
        raise InputError(f"{path}: column {column} has no row 'train'")
    return test


def _clients(path: Path, table: pyarrow.Table, column: str | None) -> tuple[np.ndarray, list[str]]:
    """Each row's client number, int64 ``[n]``, and the clients' names; a single client if there is no column."""
    if column is None:
        return np.zeros(table.num_rows, np.int64), ["all"]
    return numbered(names_in(path, table, column, "clients are strings or integers"))


def names_in(path: Path, table: pyarrow.Table, column: str, allowed: str) -> list[str | int]:
    """The values of a column of names: strings or integers.

    Raises:
        InputError: a value is missing or neither; the message ends with ``allowed``.
    """
    values = table.column(column).to_pylist()
    for row, value in enumerate(values, start=1):
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not (whole or (isinstance(value, str) and value)):
            raise InputError(f"{path}: row {row} has {column} {value!r}; {allowed}")
    return [int(value) if isinstance(value, float) else value for value in values]


def as_written(path: Path, table: pyarrow.Table, column: str) -> pyarrow.Table:
    """The table of a text file, with this column as strings even if they could be numbers or dates."""
    return table.set_column(table.column_names.index(column), column, read_table(path, (column,)).column(column))


def read_table(path: Path, texts: Sequence[str] = ()) -> pyarrow.Table:
    """A ``.csv``, ``.tsv`` or ``.parquet`` file in memory.

    Args:
        path: path of the file.
        texts: the columns of a text file that are read, as strings even if they could be numbers or dates; empty: all
            columns, each as what its values look like.

    Raises:
        InputError: the file is missing, damaged or of another kind.
    """
    import pyarrow
    import pyarrow.parquet

    if path.suffix not in (*SEPARATED, ".parquet"):
        raise InputError(f"dataset.file={path}: allowed: a file whose name ends in {', '.join(SEPARATED)} or .parquet")
    try:
        if path.exists():
            stat_regular(path)
        table = _separated(path, texts) if path.suffix in SEPARATED else pyarrow.parquet.read_table(path)
        _ = table.column_names  # names are decoded here
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        missing = "no such file; allowed: the path of your table, from the current folder"
        reason = missing if isinstance(error, FileNotFoundError) else " ".join(str(error).split())
        raise InputError(f"dataset.file={path} cannot be read: {reason}") from error
    if path.suffix not in SEPARATED:
        return table
    if binary := [field.name for field in table.schema if field.type == pyarrow.binary()]:
        raise InputError(f"{path} cannot be read: column {binary[0]} is not UTF-8")
    if not texts and table.num_rows and ends_in_quoted_text(path, table.column(-1)[-1].as_py()):
        raise InputError(f"{path} cannot be read: the last quoted text does not end; is the file cut short?")
    return table


def _separated(path: Path, texts: Sequence[str]) -> pyarrow.Table:
    """A text file in memory, separated by what its row of names has most of (:data:`DELIMITERS`)."""
    import pyarrow
    import pyarrow.csv

    with path.open("rb") as file:  # a name may contain line ends
        rows = re.sub(rb'"[^"]*"', b"x", file.read(LONGEST_ROW)).splitlines()
    names = next((row for row in rows if row.strip()), b"")
    return pyarrow.csv.read_csv(
        path,
        # Without newlines_in_values a block of the file may begin inside a quoted text.
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=max(DELIMITERS, key=names.count).decode(), newlines_in_values=True
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(texts), column_types=dict.fromkeys(texts, pyarrow.string())
        ),
    )


def numbers(path: Path, table: pyarrow.Table, column: str) -> np.ndarray:
    """A column of numbers as float64 ``[n]``, all finite.

    Raises:
        InputError: a number is missing, infinite or NaN.
    """
    import pyarrow

    values: np.ndarray = table.column(column).cast(pyarrow.float64(), safe=False).to_numpy()  # missing ones become NaN
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise InputError(f"{path}: row {row + 1} has no finite number in column {column}")
    return values
