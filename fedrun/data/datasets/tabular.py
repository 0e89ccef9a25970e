"""A table of the user's own with a column of classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.data.datasets.sample_table import SampleTable
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.system.errors import InputError


@config_class
class Tabular(SampleTable):
    """Classification.

    Attributes:
        label: the column of classes, which are integers from 0.
        classes: number of classes.
    """

    label: str
    classes: Annotated[int, Ge(2)]

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(self.features,), classes=self.classes)

    @property
    def target_columns(self) -> tuple[str, ...]:
        return (self.label,)

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.classes)))

    def targets(self, path: Path, columns: Sequence[np.ndarray], training: np.ndarray) -> tuple[torch.Tensor, Task]:
        (labels,) = columns
        wrong = (labels != np.floor(labels)) | (labels < 0) | (labels >= self.classes)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(
                f"{path}: row {row + 1} has {self.label} {labels[row]:g}; labels are integers from 0 to "
                f"{self.classes - 1} (dataset.classes={self.classes})"
            )
        return torch.from_numpy(labels.astype(np.int64)), CLASSIFICATION
