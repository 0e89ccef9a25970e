"""A table of the user's own with a column for each of several labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.column_targets import ColumnTargets, stacked
from fedrun.data.datasets.sample_table import TableHead
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.multi_label import MultiLabel
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    import pyarrow


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
