"""One class of several for each sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrun.data.tasks.base import SampleResults, Task, require_shape
from fedrun.data.tasks.confusion import accuracy, confusion_matrix, macro_f1, matthews
from fedrun.data.tasks.metric_names import CLASSIFICATION_MEASURES
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class Classification(Task):
    """Targets are classes, int64 ``[n]`` in 0 to k − 1; outputs are logits. Metrics: accuracy, macro-F1, MCC."""

    measures: ClassVar[tuple[str, ...]] = CLASSIFICATION_MEASURES
    has_classes: ClassVar[bool] = True

    def check_targets(self, targets: torch.Tensor, outputs: int, where: str) -> None:
        require_shape(targets, (), "classes", where)
        require_classes(targets, outputs, where)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    def mean_loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if type(self) is Classification:
            return torch.nn.functional.cross_entropy(outputs, targets)  # one fused call
        return super().mean_loss(outputs, targets)  # a task of the user may have another loss, or weights

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.argmax(-1)  # the lowest class on ties

    def scores(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return predictions == targets

    def combined(self, summed: torch.Tensor, models: int) -> torch.Tensor:
        return summed  # the sum, as of several encoders with one common head: FedConcat

    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        confusion = confusion_matrix(results.targets, results.predictions, outputs)
        return {"accuracy": accuracy(confusion), "f1": macro_f1(confusion), "mcc": matthews(confusion)}


CLASSIFICATION = Classification()


def require_classes(targets: torch.Tensor, classes: int, where: str) -> None:
    """Reject targets that are not integers in 0 to ``classes`` − 1.

    Raises:
        InputError: naming the source and the first such target.
    """
    if targets.is_floating_point():
        raise InputError(f"{where}: targets of {targets.dtype}; allowed: integers from 0 to {classes - 1}")
    wrong = (targets < 0) | (targets >= classes)
    if wrong.any():
        first = int(targets[wrong][0])
        raise InputError(f"{where}: a target is {first}; allowed: integers from 0 to {classes - 1}")
