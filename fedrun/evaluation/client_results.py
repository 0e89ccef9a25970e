"""Metrics over clients: the mean score, GM-Appeal, preferred-model accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.data.tasks.base import Task
from fedrun.data.tasks.metric_names import lower_is_better
from fedrun.experiment.appeal.base import Convention, OwnResults, Thresholds

Metrics = dict[str, float]


@dataclass(frozen=True)
class ClientResults:
    """A model's results for every client of a group, and whether it appeals to the client: ``[n]`` each.

    Attributes:
        loss: the loss that is compared with the threshold (without thresholds: the loss on the test samples), float64;
            NaN for a client that has no such samples, ∞ if its model has diverged.
        score: mean of the task's score over the client's own test samples, float64; NaN for a client that has none, the
            worst (±∞) if it is not a number because the model has diverged.
        threshold: ρ_k, float64; None without thresholds.
        appeal: whether the loss is below the threshold, bool; None without thresholds.
        preferred_accuracy: test accuracy of the model that the client prefers, float64; None if clients have only the
            global model.
    """

    loss: torch.Tensor
    score: torch.Tensor
    threshold: torch.Tensor | None = None
    appeal: torch.Tensor | None = None
    preferred_accuracy: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        results: OwnResults,
        thresholds: Thresholds | None,
        convention: Convention,
        task: Task,
        tests: torch.Tensor,
    ) -> ClientResults:
        """Compare results with thresholds, if there are any. The convention is ``train``, ``test`` or ``mixed``;
        ``task`` and ``tests`` are those of :meth:`metrics`.
        """
        of_train = thresholds is not None and convention == "train"
        loss, score = results.train_loss if of_train else results.test_loss, results.test_score
        tested = tests > 0
        # A model that has diverged has the worst loss and score; it appeals to no client.
        loss = torch.where(loss.isnan() & (tested | of_train), torch.inf, loss)
        worst = torch.inf if lower_is_better(task.score) else -torch.inf
        score = torch.where(score.isnan() & tested, worst, score)
        if thresholds is None:
            return cls(loss, score)
        threshold = thresholds.test if convention == "test" else thresholds.train
        appeal, solo = loss < threshold, thresholds.solo_accuracy
        # not the better of the two: the client chooses by the loss
        preferred = None if solo is None else torch.where(appeal, score, solo)
        return cls(loss, score, threshold, appeal, preferred)

    def metrics(self, task: Task, tests: torch.Tensor) -> Metrics:
        """``loss_mean``; with test samples, of the task's score, such as accuracy, ``accuracy_mean``, ``accuracy_std``
        over clients (ddof 0), ``accuracy_worst_tenth`` (the mean over the tenth of them, rounded up, with the worst),
        ``accuracy_weighted`` and ``untested``; with thresholds ``gm_appeal``; with both, and if clients have their own
        model to prefer, ``preferred_accuracy``.

        They are plain means over clients, except ``accuracy_weighted``, which is weighted by test samples (of texts by
        predicted symbols). The means leave out clients without test samples; ``untested`` is the number of these.

        Args:
            task: task of the dataset.
            tests: the sum of the weights of each client's test samples: their number, or of texts the number of
                predicted symbols.
        """
        name, metrics = task.score, {"loss_mean": self.loss.nanmean().item()}
        tested = tests > 0
        if tested.any():
            score, sizes = self.score[tested], tests[tested].double()
            worst = score.sort(descending=lower_is_better(name)).values[: -(-len(score) // 10)]
            metrics |= {
                f"{name}_mean": score.mean().item(),
                f"{name}_std": score.std(correction=0).item(),
                f"{name}_worst_tenth": worst.mean().item(),
                "untested": float((~tested).sum()),
                # Σ_k n_k a_k / Σ_k n_k
                f"{name}_weighted": ((sizes @ score) / sizes.sum()).item(),
            }
        if self.appeal is not None:
            # GM-Appeal(w) = (1/N) Σ_k 1{f_k(w) < ρ_k}
            metrics["gm_appeal"] = self.appeal[~self.loss.isnan()].double().mean().item()
        if self.preferred_accuracy is not None and tested.any():
            metrics["preferred_accuracy"] = self.preferred_accuracy[tested].mean().item()
        return metrics
