"""The record of the samples that local training processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from fedrun.data.tasks.base import Task

MOST_OUTPUTS = 2**24
"""Outputs that are collected before their scores are computed, so that one call serves several steps."""


@dataclass(frozen=True)
class Trained:
    """The record of one client's local training.

    Attributes:
        steps: SGD steps made.
        processed: samples processed.
        loss_sum: sum over processed samples of :meth:`ClientStrategy.loss`, float32 scalar on the device.
        score_sum: sum over processed samples of the task's score, a scalar on the device; for classification the number
            of correct predictions.
        compared: samples processed by forward passes under reference models.
        measured: samples processed forward and backward besides the steps.
    """

    steps: int
    processed: int
    loss_sum: torch.Tensor
    score_sum: torch.Tensor
    compared: int = 0
    measured: int = 0


class Record(Protocol):
    """Sums over the processed samples."""

    def add(self, loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add a batch.

        Args:
            loss: the mean over the batch, a scalar without gradient.
            logits: ``[B, ...]``, without gradient.
            targets: ``[B, ...]``.
        """

    def sums(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Σ of the samples' losses, float32, and Σ of their scores: scalars on the device."""


class Collected:
    """A record that computes the scores of many batches at once: on a CPU the steps of small networks cost so little
    that a few more operations in each would show.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._losses: list[torch.Tensor] = []
        self._sizes: list[int] = []
        self._logits: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self._waiting = 0
        self._scores: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        self._losses.append(loss)
        self._sizes.append(len(targets))
        self._logits.append(logits)
        self._targets.append(targets)
        self._waiting += logits.numel()
        if self._task.per_symbol or self._waiting > MOST_OUTPUTS:  # texts of several lengths cannot be joined
            self._compute_scores()

    def _compute_scores(self) -> None:
        predictions = self._task.predictions(torch.cat(self._logits))
        self._scores.append(self._task.scores(predictions, torch.cat(self._targets)).sum())
        self._logits.clear()
        self._targets.clear()
        self._waiting = 0

    def sums(self) -> tuple[torch.Tensor, torch.Tensor]:
        losses = torch.stack(self._losses)
        if self._logits:
            self._compute_scores()
        scores = self._scores[0] if len(self._scores) == 1 else torch.stack(self._scores).sum()
        return losses @ losses.new_tensor(self._sizes), scores


class Running:
    """A record that adds every batch to its sums where they are: on a GPU, which need not be waited for.

    Args:
        task: task of the dataset.
        device: device of the sums.
    """

    def __init__(self, task: Task, device: torch.device) -> None:
        self._task = task
        self._loss = torch.zeros((), device=device)
        self._score = torch.zeros((), dtype=torch.float64, device=device)

    def clear(self) -> None:
        """Set the sums to zero."""
        self._loss.zero_()
        self._score.zero_()

    def add(self, loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        self._loss.add_(loss, alpha=len(targets))
        self._score.add_(self._task.scores(self._task.predictions(logits), targets).sum())

    def sums(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._loss.clone(), self._score.clone()
