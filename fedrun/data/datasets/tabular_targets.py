"""The users' own tables with a column for each output of the model: numbers to predict, or several labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.data.datasets.sample_table import SampleTable, TableHead, numbers
from fedrun.data.datasets.table_columns import ColumnKeys, Columns
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.multi_label import MultiLabel
from fedrun.data.tasks.regression import Regression
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import pyarrow

ROUNDING = 1e-3
"""Largest error of rounding targets to float32, as a share of their standard deviation."""


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


@config_class
class TabularRegression(ColumnTargets):
    """Regression.

    With ``standardise`` the model predicts targets with mean 0 and standard deviation 1 over the training rows, too
    (those of :attr:`SampleTable.standardise`); metrics are in the columns' own units.

    Attributes:
        labels: the columns of numbers to predict.
    """

    task: ClassVar[Task] = Regression()

    def targets(
        self, path: Path, table: pyarrow.Table, head: TableHead, training: np.ndarray
    ) -> tuple[torch.Tensor, Task]:
        numbers = stacked(path, table, head)
        with np.errstate(over="ignore"):
            stored = numbers.astype(np.float32)
        if not np.isfinite(stored).all():
            row, label = (int(place) for place in np.argwhere(~np.isfinite(stored))[0])
            column = head.columns.targets[label]
            raise InputError(
                f"{path}: row {row + 1} has {column} {numbers[row, label]:g}; allowed: up to 3.4e38 (float32)"
            )
        error, spread = np.abs(stored - numbers).max(0), numbers[training].std(0)
        coarse = (error > ROUNDING * spread) & varying(numbers[training])
        if coarse.any():
            column = head.columns.targets[int(coarse.argmax())]
            raise InputError(
                f"{path}: {column} varies too little for numbers of its size (float32 has seven digits); allowed: "
                "numbers from which a constant is subtracted"
            )
        return torch.from_numpy(stored), scaled_task(numbers[training]) if self.standardise else Regression()


@config_class
class TabularMultiLabel(ColumnTargets):
    """Any number of labels for each sample.

    Attributes:
        labels: a column for each label: 1 where a sample has it, otherwise 0.
    """

    task: ClassVar[Task] = MultiLabel()

    def targets(
        self, path: Path, table: pyarrow.Table, head: TableHead, training: np.ndarray
    ) -> tuple[torch.Tensor, Task]:
        has = stacked(path, table, head)
        wrong = (has != 0) & (has != 1)
        if wrong.any():
            row, label = (int(place) for place in np.argwhere(wrong)[0])
            raise InputError(
                f"{path}: row {row + 1} has {head.columns.targets[label]} {has[row, label]:g}; allowed: 0 or 1"
            )
        return torch.from_numpy(has.astype(np.uint8)), MultiLabel()


def stacked(path: Path, table: pyarrow.Table, head: TableHead) -> np.ndarray:
    """The target columns, float64 ``[n, k]``, all finite."""
    return np.stack([numbers(path, table, column) for column in head.columns.targets], axis=1)


def varying(targets: np.ndarray) -> np.ndarray:
    """Which columns of ``[n, k]`` vary, bool ``[k]``; the standard deviation of a constant may be above 0."""
    return np.asarray(targets.max(0) > targets.min(0))


def scaled_task(targets: np.ndarray) -> Regression:
    """The regression whose outputs have mean 0 and standard deviation 1 over these targets, float64 ``[n, k]``.

    Targets that do not vary keep their unit.
    """
    std = np.where(varying(targets), targets.std(0), 1.0)
    return Regression(tuple(targets.mean(0).tolist()), tuple(std.tolist()))
