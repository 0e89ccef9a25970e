"""The users' own tables with a column for each output of the model."""

from __future__ import annotations

from typing import Annotated, ClassVar

from annotated_types import Len

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.data.datasets.sample_table import SampleTable
from fedrun.data.tasks.base import Task


@config_class
class ColumnTargets(SampleTable):
    """A table whose ``labels`` are columns of numbers, one per output.

    Attributes:
        labels: the columns.
        task: what they mean, before the table is read.
    """

    labels: Annotated[tuple[str, ...], Len(1)]

    task: ClassVar[Task]

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(self.features,), classes=len(self.labels), task=self.task)

    @property
    def target_columns(self) -> tuple[str, ...]:
        return self.labels

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.labels
