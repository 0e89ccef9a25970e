"""Tasks: the loss of a sample, the prediction, and the metrics of a model's results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrun.config.own_methods import check_methods
from fedrun.system.errors import InputError


class Task(ABC):
    """The meaning of a model's outputs for a dataset's targets. A task is a value: a frozen dataclass.

    Attributes:
        measures: names of the metrics of all samples together, :attr:`score` first. If less is better, the name has
            one of the words in :data:`fedrun.data.tasks.metric_names.LOWER_IS_BETTER`, such as ``brier_error``.
        has_classes: whether a target is one class of several, int64 ``[n]``, and a model's head has one row per class.
            Partitions by label, attacks on labels and strategies that compare classes need it.
        per_symbol: whether a model gives outputs for every symbol of a text, and batches are cut to their longest text.
    """

    measures: ClassVar[tuple[str, ...]]
    has_classes: ClassVar[bool] = False
    per_symbol: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_methods(cls)

    @property
    def score(self) -> str:
        """The name of the number that rates a single sample's prediction, as in ``test/accuracy``.

        Its mean over a client's samples is the client's metric.
        """
        return self.measures[0]

    @property
    def name(self) -> str:
        """The task's name in messages."""
        return type(self).__name__

    def output_shape(self, input_shape: tuple[int, ...], outputs: int) -> tuple[int, ...]:
        """The shape of a model's outputs for a sample.

        Args:
            input_shape: the sample's shape.
            outputs: k, the numbers that a model gives for a sample, or for each part of it, such as a symbol.
        """
        return (outputs,)

    @abstractmethod
    def check_targets(self, targets: torch.Tensor, outputs: int, where: str) -> None:
        """Reject targets that the task cannot use.

        Args:
            targets: ``[n, ...]``.
            outputs: k.
            where: the source's name, for the message.

        Raises:
            InputError: a wrong shape, type or value.
        """

    @abstractmethod
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of every sample, float32 ``[B]``.

        Args:
            outputs: outputs of the model, float32 ``[B, *output_shape]``, usually ``[B, k]``.
            targets: targets of the samples, ``[B, ...]``.
        """

    def mean_loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of a batch, a scalar: the mean with :meth:`weights`. A task may only compute it faster."""
        return self.mean_of(self.loss(outputs, targets), targets)

    def weights(self, targets: torch.Tensor) -> torch.Tensor | None:
        """The weight of each sample in mean losses and mean scores, float32 ``[B]``, at least 0; None: all weights are
        equal. Metrics over all samples have these weights only if :meth:`metrics` uses them.
        """
        return None

    def mean_of(self, losses: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean of the losses ``[B]`` of samples with these targets, a scalar."""
        weights = self.weights(targets)
        return losses.mean() if weights is None else (losses * weights).sum() / divisor(weights.sum())

    @abstractmethod
    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """A model's predictions from its outputs, ``[B, ...]``: what the scores and metrics need."""

    @abstractmethod
    def scores(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """:attr:`score` of every sample, bool or float32 ``[B]``."""

    def combined(self, summed: torch.Tensor, models: int) -> torch.Tensor:
        """The outputs of several models as one: their mean, given their sum."""
        return summed / models

    @abstractmethod
    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        """The metrics of all samples together, without the loss: those of :attr:`measures`.

        Args:
            results: results of one model.
            outputs: k.
        """


def divisor(weights: torch.Tensor) -> torch.Tensor:
    """Sums of weights as divisors of weighted sums, of the same shape: 1 without any weight, so that a mean is 0."""
    return weights.where(weights > 0, 1)


@dataclass(frozen=True)
class SampleResults:
    """One model's results on n samples, in their order, on the CPU.

    Attributes:
        losses: float32 ``[n]``.
        predictions: ``[n, ...]``, as :meth:`Task.predictions` returns them.
        targets: ``[n, ...]``.
        task: task of the dataset.
    """

    losses: torch.Tensor
    predictions: torch.Tensor
    targets: torch.Tensor
    task: Task

    @property
    def scores(self) -> torch.Tensor:
        """:attr:`Task.score` of every sample, float64 ``[n]``."""
        return self.task.scores(self.predictions, self.targets).double()

    @property
    def weights(self) -> torch.Tensor:
        """The weight of each sample in a mean, float64 ``[n]``."""
        weights = self.task.weights(self.targets)
        return torch.ones(len(self.losses), dtype=torch.float64) if weights is None else weights.double()

    @property
    def mean_loss(self) -> float:
        """The mean loss; NaN without samples."""
        return self._mean(self.losses.double())

    @property
    def training_loss(self) -> float:
        """The mean loss as training counts it: 0 if no sample has a weight."""
        return self.task.mean_of(self.losses.double(), self.targets).item()

    @property
    def mean_score(self) -> float:
        """The mean of :attr:`scores`; NaN without samples."""
        return self._mean(self.scores)

    def _mean(self, values: torch.Tensor) -> float:
        weights = self.task.weights(self.targets)
        return (values.mean() if weights is None else (values * weights).sum() / weights.sum()).item()

    def metrics(self, outputs: int) -> dict[str, float]:
        """``loss`` and the task's metrics, of all samples together.

        Raises:
            InputError: the task computes other metrics than its :attr:`Task.measures`.
        """
        metrics: object = self.task.metrics(self, outputs)
        if not isinstance(metrics, Mapping) or metrics.keys() != set(self.task.measures):
            returned = ", ".join(map(str, metrics)) if isinstance(metrics, Mapping) else f"a {type(metrics).__name__}"
            raise InputError(
                f"{self.task.name}.metrics: returned {returned}; allowed: the metrics of its measures, "
                f"{', '.join(self.task.measures)}"
            )
        return {"loss": self.mean_loss, **{name: float(metrics[name]) for name in self.task.measures}}


def joined(parts: Sequence[SampleResults]) -> SampleResults:
    """Results on several sets of samples, one after the other."""
    return SampleResults(
        torch.cat([part.losses for part in parts]),
        torch.cat([part.predictions for part in parts]),
        torch.cat([part.targets for part in parts]),
        parts[0].task,
    )


def require_shape(targets: torch.Tensor, trailing: tuple[int | None, ...], what: str, where: str) -> None:
    """Reject targets whose shape is not ``[n, *trailing]``; None allows any size.

    Raises:
        InputError: naming the source, the shape and what is allowed.
    """
    shape = tuple(targets.shape[1:])
    fits = len(shape) == len(trailing) and all(
        expected in (None, size) for expected, size in zip(trailing, shape, strict=True)
    )
    if not fits:
        expected = ", ".join(["n", *("length" if size is None else str(size) for size in trailing)])
        raise InputError(f"{where}: targets {list(targets.shape)}; allowed: {what} [{expected}]")
