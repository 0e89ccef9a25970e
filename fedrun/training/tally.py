"""Sums over the samples that local training processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from fedrun.data.tasks.base import Task

MOST_OUTPUTS = 2**24
"""Outputs that are collected before their scores are computed, so that one call serves several steps."""


@dataclass(frozen=True)
class Trained:
    """The counts and sums of one client's local training.

    Attributes:
        steps: SGD steps made.
        processed: samples processed forward and backward.
        loss_sum: weighted sum over processed samples of :meth:`ClientStrategy.loss`, float32 scalar on the device.
        score_sum: weighted sum over processed samples of the task's score, a scalar on the device; for classification
            the number of correct predictions.
        weight_sum: sum of their weights (:meth:`Task.weights`), a scalar on the device; of most tasks their number.
        compared: samples processed by forward passes under reference models.
    """

    steps: int
    processed: int
    loss_sum: torch.Tensor
    score_sum: torch.Tensor
    weight_sum: torch.Tensor
    compared: int = 0


Sums = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Σ of samples' weighted losses, float32, of their weighted scores, and of their weights: scalars on the device."""


class Tally(Protocol):
    """Sums over the processed samples."""

    def add(self, loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add a batch.

        Args:
            loss: the mean over the batch, a scalar without gradient.
            logits: ``[B, ...]``, without gradient.
            targets: ``[B, ...]``.
        """

    def sums(self) -> Sums:
        """The sums so far."""


def weighted_scores(task: Task, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Σ of the weighted scores of samples, a scalar."""
    scores, weights = task.scores(task.predictions(logits), targets), task.weights(targets)
    return (scores if weights is None else scores * weights).sum()


class BatchedTally:
    """A tally that computes the scores of many batches at once: on a CPU the steps of small networks cost so little
    that a few more operations in each would show.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._losses: list[torch.Tensor] = []
        self._weights: list[float] = []
        self._logits: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self._waiting = 0
        self._scores: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        weights = self._task.weights(targets)
        self._losses.append(loss)
        self._weights.append(len(targets) if weights is None else float(weights.sum()))
        self._logits.append(logits)
        self._targets.append(targets)
        self._waiting += logits.numel()
        if self._task.per_symbol or self._waiting > MOST_OUTPUTS:  # texts of several lengths cannot be joined
            self._compute_scores()

    def _compute_scores(self) -> None:
        self._scores.append(weighted_scores(self._task, torch.cat(self._logits), torch.cat(self._targets)))
        self._logits.clear()
        self._targets.clear()
        self._waiting = 0

    def sums(self) -> Sums:
        losses = torch.stack(self._losses)
        if self._logits:
            self._compute_scores()
        scores = self._scores[0] if len(self._scores) == 1 else torch.stack(self._scores).sum()
        weights = losses.new_tensor(self._weights)
        return losses @ weights, scores, weights.sum(dtype=torch.float64)


class RunningTally:
    """A tally that adds every batch to its sums where they are: on a GPU, which need not be waited for.

    Args:
        task: task of the dataset.
        device: device of the sums.
    """

    def __init__(self, task: Task, device: torch.device) -> None:
        self._task = task
        self._loss = torch.zeros((), device=device)
        self._score = torch.zeros((), dtype=torch.float64, device=device)
        self._weight = torch.zeros((), dtype=torch.float64, device=device)

    def clear(self) -> None:
        """Set the sums to zero."""
        self._loss.zero_()
        self._score.zero_()
        self._weight.zero_()

    def add(self, loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        weights = self._task.weights(targets)
        if weights is None:
            self._loss.add_(loss, alpha=len(targets))
            self._weight.add_(len(targets))
        else:
            self._loss.add_(loss * weights.sum())
            self._weight.add_(weights.sum())
        self._score.add_(weighted_scores(self._task, logits, targets))

    def sums(self) -> Sums:
        return self._loss.clone(), self._score.clone(), self._weight.clone()
