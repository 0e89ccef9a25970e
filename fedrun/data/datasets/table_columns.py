"""The roles of the columns of a user's own table: targets, inputs, clients and splits.

Keys of the configuration name columns. A role without a key is inferred from the columns' names, and one message lists
everything that could not be inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrun.config.suggestions import did_you_mean
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import pyarrow

AUTO = "auto"

TARGET_NAMES = ("label", "target", "class", "y")
CLIENT_NAMES = ("client", "client_id", "user", "user_id")
SPLIT_NAMES = ("split",)
INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")
"""Names of a data frame's row numbers in the files that pandas writes."""
NUMBER_NAMES = ("id", "index")
"""Names of row numbers where the column has consecutive integers."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table.

    Attributes:
        targets: what is predicted.
        features: the inputs, in the table's order.
        client: its values name the clients; None: rows have no clients.
        split: column with ``train`` and ``test``; None: all rows are training samples.
        row_numbers: columns that only number the rows, which are left out.
    """

    targets: tuple[str, ...]
    features: tuple[str, ...]
    client: str | None
    split: str | None
    row_numbers: tuple[str, ...]


@dataclass(frozen=True)
class ColumnKeys:
    """The configuration's keys for the columns.

    Attributes:
        key: the name of the key for the targets: ``label`` or ``labels``.
        targets: the columns of the targets; empty: the one that is named like a target.
        client: the column of clients; ``auto``: the one with such a name, if there is one; None: none.
        split: the column with ``train`` and ``test``, in the same way.
        drop: columns that are not used.
        texts: whether targets may be strings.
    """

    key: str
    targets: tuple[str, ...]
    client: str | None
    split: str | None
    drop: tuple[str, ...]
    texts: bool

    def columns(self, path: Path, table: pyarrow.Table) -> Columns:
        """The columns of a table.

        Raises:
            InputError: listing everything that is missing or cannot be decided.
        """
        names, roles = table.column_names, self._roles()
        free = [name for name in names if not any(name in wanted for wanted in roles.values())]
        targets = [name for name in self.targets if name in names] or named_like(TARGET_NAMES, free)
        clients, splits = (
            named_like(like, free) if column == AUTO else [column] if column else []
            for column, like in ((self.client, CLIENT_NAMES), (self.split, SPLIT_NAMES))
        )
        if not targets and (numbers := numbers_as_names(table)):
            raise InputError(
                f"{path}: the first row has numbers instead of column names: {', '.join(numbers)}; allowed: a row of "
                f"names above it, or dataset.{self.key} with one of these"
            )
        counts = Counter(names)
        distinct = table.select([name for name in names if counts[name] == 1])
        row_numbers = tuple(name for name in distinct.column_names if name in free and numbers_rows(distinct, name))
        special = {*targets, *clients, *splits, *self.drop, *row_numbers}
        features = tuple(name for name in distinct.column_names if name not in special)
        problems = [
            *_wrong_names(names, roles),
            *self._undecided(names, distinct.select(features), targets, clients, splits),
            *self._unusable_targets(distinct, targets),
        ]
        if not features:
            problems.append("no column is left as an input")
        if problems:
            end = "" if problems[-1].endswith("?") else "."
            raise InputError(f"{path}: {'; '.join(problems)}{end} Its columns: {', '.join(names)}")
        return Columns(
            tuple(targets), features, clients[0] if clients else None, splits[0] if splits else None, row_numbers
        )

    def _roles(self) -> Mapping[str, Sequence[str]]:
        """The columns that each key names."""
        return {
            f"dataset.{self.key}": self.targets,
            "dataset.client": () if self.client in (AUTO, None) else (self.client,),
            "dataset.split": () if self.split in (AUTO, None) else (self.split,),
            "dataset.drop": self.drop,
        }

    def _undecided(
        self,
        names: Sequence[str],
        inputs: pyarrow.Table,
        targets: Sequence[str],
        clients: Sequence[str],
        splits: Sequence[str],
    ) -> Iterator[str]:
        """The roles that no column has or that several could have, and columns that cannot be inputs.

        Args:
            names: all columns.
            inputs: the columns without another role.
            targets: those that a key names, or that could be predicted by their names.
            clients: those that could name the clients.
            splits: those that could have the splits.
        """
        others = [name for name in inputs.column_names if not numeric(inputs, name)]
        if len(targets) != 1 and not set(targets) & set(self.targets):
            likely = targets or [name for name in others if self.texts and textual(inputs, name)]
            perhaps = f", perhaps {' or '.join(likely)}" if likely else ""
            if not self.targets:
                yield (
                    f"dataset.{self.key}: which column is predicted{perhaps}? No single one is named "
                    f"{' or '.join(TARGET_NAMES)}"
                )
            if len(likely) == 1:
                others.remove(likely[0])  # a target may have strings
        for key, columns in {"client": clients, "split": splits}.items():
            if len(columns) > 1:
                yield f"dataset.{key}: which of {' and '.join(columns)}? allowed: one of them, or null"
        gaps = _gaps(inputs)
        described = (f"{name}{_first_text(inputs, name)}" for name in others)
        unusable = [f"inputs that are not numbers: {', '.join(described)}"] if others else []
        if gaps:
            incomplete = (
                f"{name} (row {first}{f' and {more} more' if more else ''})" for name, (first, more) in gaps.items()
            )
            unusable.append(f"inputs without a finite number in some rows: {', '.join(incomplete)}")
        if unusable:
            drop = ",".join([*(name for name in self.drop if name in names), *others, *gaps])
            allowed = [f"dataset.drop=[{drop}] (not used)", "or numbers"]
            if texts := [name for name in others if self.client == AUTO and not clients and textual(inputs, name)]:
                allowed.insert(0, f"dataset.client={' or '.join(texts)} (its values are the clients)")
            yield f"{'; '.join(unusable)}; allowed: {', '.join(allowed)}"

    def _unusable_targets(self, table: pyarrow.Table, targets: Sequence[str]) -> Iterator[str]:
        """What is wrong with the types of the targets."""
        names = [] if self.texts else [name for name in targets if name in table.column_names]  # others are repeated
        if wrong := [name for name in names if not numeric(table, name)]:
            yield f"dataset.{self.key}: targets that are not numbers: {', '.join(wrong)}"


def _gaps(table: pyarrow.Table) -> dict[str, tuple[int, int]]:
    """The columns of numbers that lack a finite one in some row: the first such row, from 1, and how many more."""
    import pyarrow

    gaps = {}
    for name in table.column_names:
        column = table.column(name)
        if not numeric(table, name) or not (column.null_count or pyarrow.types.is_floating(_values(column.type))):
            continue
        missing = ~np.isfinite(column.cast(pyarrow.float64(), safe=False).to_numpy())
        if missing.any():
            gaps[name] = (int(missing.argmax()) + 1, int(missing.sum()) - 1)
    return gaps


def _first_text(table: pyarrow.Table, column: str) -> str:
    """The first string of a column in which most values are numbers, such as ``" (row 3: '?')"``; else nothing."""
    if not textual(table, column):
        return ""
    values = map(str, table.column(column).to_pylist())
    texts = [(row, value) for row, value in enumerate(values, start=1) if not _is_number(value)]
    if not 0 < 2 * len(texts) < table.num_rows:
        return ""
    row, value = texts[0]
    more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
    return f" (row {row}: {value!r}{more})"


def _wrong_names(names: Sequence[str], roles: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What is wrong with a table's column names, and with the columns that the keys name."""
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        yield f"several columns are named {', '.join(repeated)}; allowed: one each"
    for key, wanted in roles.items():
        if missing := [name for name in wanted if name not in names]:
            meant = "".join(dict.fromkeys(did_you_mean(name, names) for name in missing))
            yield f"{key}: there is no column {', '.join(map(repr, missing))}{meant}"
        if twice := sorted({name for name in wanted if wanted.count(name) > 1}):
            yield f"{key}: names {', '.join(twice)} twice"
    for name in sorted({name for wanted in roles.values() for name in wanted}):
        if len(keys := [key for key, wanted in roles.items() if name in wanted]) > 1:
            yield f"{' and '.join(keys)} name the same column {name}; allowed: different ones"


def named_like(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    """The columns with one of these names, in upper or lower case."""
    return [name for name in names if name.lower() in wanted]


def numbers_as_names(table: pyarrow.Table) -> list[str]:
    """The columns' names if all columns of numbers have numbers for names, as in a file without names; or no name."""
    names = [field.name for field in table.schema if _has_numbers(field.type)]
    return table.column_names if names and all(map(_is_number, names)) else []


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def numbers_rows(table: pyarrow.Table, column: str) -> bool:
    """Whether a column is an index of pandas, or has consecutive integers in any order and such a name."""
    import pyarrow

    values = table.column(column)
    if column in INDEX_NAMES:
        return True
    if column.lower() not in NUMBER_NAMES or not pyarrow.types.is_integer(values.type) or values.null_count:
        return False
    return bool((np.diff(np.sort(values.to_numpy())) == 1).all())


def numeric(table: pyarrow.Table, column: str) -> bool:
    """Whether a column has integers, floating-point numbers or booleans."""
    return _has_numbers(table.column(column).type)


def _has_numbers(kind: pyarrow.DataType) -> bool:
    import pyarrow

    values, kinds = _values(kind), pyarrow.types
    return bool(kinds.is_integer(values) or kinds.is_floating(values) or kinds.is_boolean(values))


def _values(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type of a column's values, which a column of categories numbers."""
    import pyarrow

    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


def textual(table: pyarrow.Table, column: str) -> bool:
    """Whether a column has strings."""
    import pyarrow

    values, kinds = _values(table.column(column).type), pyarrow.types
    return bool(kinds.is_string(values) or kinds.is_large_string(values))
