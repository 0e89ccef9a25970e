"""The users' own tables with a column for each output of the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.data.datasets.sample_table import SampleTable, TableHead, numbers
from fedrun.data.datasets.table_columns import ColumnKeys, Columns
from fedrun.data.tasks.base import Task

if TYPE_CHECKING:
    import pyarrow


@config_class
class ColumnTargets(SampleTable):
    """A table whose targets are columns of numbers, one per output.

    Attributes:
        labels: the columns; None: the one that is named like a target.
        task: without the training rows' scale, which is known when the table is read.
    """

    labels: tuple[str, ...] | None

    task: ClassVar[Task]

    @property
    def keys(self) -> ColumnKeys:
        return ColumnKeys("labels", self.labels or (), self.client, self.split, self.drop, texts=False)

    def head(self, path: Path, table: pyarrow.Table, columns: Columns) -> TableHead:
        spec = Spec(input_shape=(len(columns.features),), classes=len(columns.targets), task=self.task)
        return TableHead(columns, spec, columns.targets)


def stacked(path: Path, table: pyarrow.Table, head: TableHead) -> np.ndarray:
    """The target columns, float64 ``[n, k]``, all finite."""
    return np.stack([numbers(path, table, column) for column in head.columns.targets], axis=1)
