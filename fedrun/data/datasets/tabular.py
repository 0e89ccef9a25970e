"""A table of the user's own with a column of classes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.data.datasets.sample_table import SEPARATED, SampleTable, TableHead, as_written, names_in
from fedrun.data.datasets.table_columns import ColumnKeys, Columns, numeric, textual
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import pyarrow

LEADING_ZERO = re.compile(r"\s*[+-]?0\d")
"""The beginning of a number that may be another name than the same number in its usual form."""

INTEGER = re.compile(r"\s*[+-]?\d+\s*")


@config_class
class Tabular(SampleTable):
    """Classification.

    Attributes:
        label: the column of classes; None: the one with such a name.
        classes: number of classes, if labels are integers from 0 of which the table may lack some; None: the classes
            are the different values of the column, integers or strings, in ascending order.
    """

    label: str | None
    classes: Annotated[int, Ge(2)] | None

    @property
    def keys(self) -> ColumnKeys:
        targets = () if self.label is None else (self.label,)
        return ColumnKeys("label", targets, self.client, self.split, self.drop, texts=True)

    def read(self) -> pyarrow.Table:
        """The file's content. Classes of a text file are as they are written if they are dates or, without ``classes``,
        if one has a leading zero, as 02 is another class than 2, or if they are integers beyond those of 64 bits.

        Raises:
            InputError: the file is missing or damaged, or lacks a column.
        """
        import pyarrow

        table = super().read()
        if self.path.suffix not in SEPARATED or not table.num_rows:
            return table
        (column,) = self.keys.columns(self.path, table).targets
        is_number = numeric(table, column)
        if textual(table, column) or (is_number and self.classes is not None):
            return table
        written = as_written(self.path, table, column)
        texts = written.column(column).unique().to_pylist()
        huge = table.column(column).type != pyarrow.int64() and all(map(INTEGER.fullmatch, texts))
        if is_number and not huge and not any(map(LEADING_ZERO.match, texts)):
            return table
        return written

    def head(self, path: Path, table: pyarrow.Table, columns: Columns) -> TableHead:
        (column,) = columns.targets
        values = _labels(path, table, column)
        if self.classes is None:
            labels: tuple[str | int, ...] = tuple(sorted(set(values)))
            if len(labels) < 2:
                raise InputError(f"{path}: column {column} has the value {labels[0]!r} alone; allowed: at least 2")
        else:
            labels = tuple(range(self.classes))
            for row, value in enumerate(values, start=1):
                if value not in labels:
                    raise InputError(
                        f"{path}: row {row} has {column} {value!r}; labels are integers from 0 to {self.classes - 1} "
                        f"(dataset.classes={self.classes}; null takes the values in the table)"
                    )
        spec = Spec(input_shape=(len(columns.features),), classes=len(labels))
        return TableHead(columns, spec, tuple(map(str, labels)), labels)

    def targets(
        self, path: Path, table: pyarrow.Table, head: TableHead, training: np.ndarray
    ) -> tuple[torch.Tensor, Task]:
        (column,) = head.columns.targets
        number = {label: number for number, label in enumerate(head.labels)}
        return torch.tensor([number[value] for value in _labels(path, table, column)]), CLASSIFICATION


def _labels(path: Path, table: pyarrow.Table, column: str) -> list[str | int]:
    """The values of a label column, all strings or all integers.

    Raises:
        InputError: a label is missing, or no integer.
    """
    allowed = "labels are integers or strings (dataset=tabular_regression predicts numbers)"
    return [int(value) if isinstance(value, bool) else value for value in names_in(path, table, column, allowed)]
