"""Metrics over clients: mean accuracy, GM-Appeal, preferred-model accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.experiment.appeal.base import Convention, OwnResults, Thresholds

Metrics = dict[str, float]


@dataclass(frozen=True)
class ClientResults:
    """How a model does for every client of a population, and whether it appeals to it: ``[n]`` each.

    Attributes:
        accuracy: on the client's own test samples, float64; NaN for a client that has none.
        loss: what is compared with the threshold (without thresholds: the loss on the test samples), float64; NaN for a
            client that has no such samples, ∞ where its model has diverged.
        threshold: ρ_k, float64; None without thresholds.
        appeal: whether the loss is below the threshold, bool; None without thresholds.
        preferred_accuracy: test accuracy of the model that the client prefers, float64; None where clients have no
            model but the global one.
        tests: the number of the client's test samples, int64; None where it does not matter.
    """

    accuracy: torch.Tensor
    loss: torch.Tensor
    threshold: torch.Tensor | None
    appeal: torch.Tensor | None
    preferred_accuracy: torch.Tensor | None
    tests: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        results: OwnResults,
        thresholds: Thresholds | None,
        convention: Convention,
        tests: torch.Tensor | None = None,
    ) -> ClientResults:
        """Judge results by thresholds, if there are any; the convention is not ``auto`` here."""
        accuracy = results.test_accuracy
        if thresholds is None:
            return cls(accuracy, results.test_loss, None, None, None, tests)
        loss = results.train_loss if convention == "train" else results.test_loss
        counted = torch.ones_like(loss, dtype=torch.bool) if convention == "train" else ~accuracy.isnan()
        loss = torch.where(loss.isnan() & counted, torch.inf, loss)  # a model that has diverged appeals to nobody
        threshold = thresholds.test if convention == "test" else thresholds.train
        appeal, solo = loss < threshold, thresholds.solo_accuracy
        # not the better of the two: the client chooses by the loss
        preferred = None if solo is None else torch.where(appeal, accuracy, solo)
        return cls(accuracy, loss, threshold, appeal, preferred, tests)

    def metrics(self) -> Metrics:
        """``loss_mean``; with test samples ``accuracy_mean``, ``accuracy_std`` over clients (ddof 0),
        ``accuracy_worst_tenth`` (the mean over the tenth of them, rounded up, with the lowest) and ``untested``; with
        thresholds ``gm_appeal``; with both, and where clients have a model to prefer, ``preferred_accuracy``.

        They are plain means over clients, but for ``accuracy_weighted`` (where ``tests`` are known): by test samples.
        Clients without test samples are left out of them, and counted as untested.
        """
        tested = ~self.accuracy.isnan()
        found = {"loss_mean": self.loss.nanmean().item()}
        if tested.any():
            accuracy = self.accuracy[tested]
            worst = accuracy.sort().values[: -(-len(accuracy) // 10)]
            found |= {
                "accuracy_mean": accuracy.mean().item(),
                "accuracy_std": accuracy.std(correction=0).item(),
                "accuracy_worst_tenth": worst.mean().item(),
                "untested": float((~tested).sum()),
            }
        if tested.any() and self.tests is not None:
            # Σ_k n_k a_k / Σ_k n_k
            sizes = self.tests[tested].double()
            found["accuracy_weighted"] = ((sizes @ self.accuracy[tested]) / sizes.sum()).item()
        if self.appeal is not None:
            # GM-Appeal(w) = (1/N) Σ_k 1{f_k(w) < ρ_k}
            found["gm_appeal"] = self.appeal[~self.loss.isnan()].double().mean().item()
        if self.preferred_accuracy is not None and tested.any():
            found["preferred_accuracy"] = self.preferred_accuracy.nanmean().item()
        return found
