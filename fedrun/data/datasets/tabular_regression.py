"""A table of the user's own with columns of numbers to predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.column_targets import ColumnTargets, stacked
from fedrun.data.datasets.sample_table import TableHead
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.regression import Regression
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import pyarrow


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


ROUNDING = 1e-3
"""Largest error of rounding targets to float32, as a share of their standard deviation."""


def varying(targets: np.ndarray) -> np.ndarray:
    """Which columns of ``[n, k]`` vary, bool ``[k]``; the standard deviation of a constant may be above 0."""
    return np.asarray(targets.max(0) > targets.min(0))


def scaled_task(targets: np.ndarray) -> Regression:
    """The regression whose outputs have mean 0 and standard deviation 1 over these targets, float64 ``[n, k]``.

    Targets that do not vary keep their unit.
    """
    std = np.where(varying(targets), targets.std(0), 1.0)
    return Regression(tuple(targets.mean(0).tolist()), tuple(std.tolist()))
