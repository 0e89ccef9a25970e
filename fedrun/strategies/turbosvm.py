"""TurboSVM-FL's server side (Wang, Bodonhelyi, Bozkir, Kasneci, AAAI 2024).

The clients' class embeddings (the rows of their logit layers) are labelled samples of a multi-class SVM. For each class
only the embeddings that are support vectors are averaged, and the averages are then pushed apart along the SVM's
normals.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.config.marks import NoEffect
from fedrun.strategies.head_refinement import HeadRefinement, Refined
from fedrun.strategies.server import CohortUpdate, Round, Rows
from fedrun.strategies.svm import FittedSVM, Kernel, KernelName, Multiclass, fit, spread_out_loss
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError, RunError
from fedrun.system.randomness import generator


@config_class
class TurboSVM(HeadRefinement):
    """Selective aggregation and max-margin spread-out regularisation of the class embeddings (Algorithms 1 to 3).

    Attributes:
        selective: average only the support vectors of each class; otherwise keep the base's aggregate.
        spread_out: take the Adam step on the spread-out loss.
        multiclass: ``ovo`` (the paper) or ``ovr``.
        kernel: ``linear``, ``poly``, ``rbf`` or ``sigmoid``.
        gamma: γ > 0 of poly, rbf and sigmoid.
        coef0: c₀ of poly and sigmoid.
        degree: degree of the polynomial kernel.
        schedule: the SVM's penalty C in round t of T: ``decreasing`` (T − t)/T (the paper's "linearly increasing
            regularisation"), ``increasing`` (t + 1)/T, ``constant`` 1.
        schedule_rounds: T of the schedule; None for the rounds of the run. The published results use 201.
        tolerance: libsvm's tolerance.
        max_iterations: SMO iterations per binary SVM, 50 in the published code; −1 for no limit. If it stops one early,
            the metric ``server/svm_stopped_early`` is 1.
        classes_per_round: a float up to 1.0 is the share of the classes that enter the SVM each round, an int their
            number (at least 2, drawn again in every round).
    """

    selective: bool
    spread_out: bool
    multiclass: Multiclass
    kernel: KernelName
    gamma: Annotated[float, Gt(0), NoEffect("kernel", ("linear",))]
    coef0: Annotated[float, NoEffect("kernel", ("linear", "rbf"))]
    degree: Annotated[int, Ge(1), NoEffect("kernel", ("linear", "rbf", "sigmoid"))]
    schedule: Literal["decreasing", "increasing", "constant"]
    schedule_rounds: Annotated[Annotated[int, Ge(1)] | None, NoEffect("schedule", ("constant",))]
    tolerance: Annotated[float, Gt(0)]
    max_iterations: Literal[-1] | Annotated[int, Ge(1)]
    classes_per_round: Annotated[int, Ge(2)] | Annotated[float, Gt(0), Le(1)]

    rows: ClassVar[Rows] = "head"
    moments: ClassVar[str] = "turbosvm"

    @property
    def needs(self) -> frozenset[str]:
        return self.base.needs | {MODEL}

    def check(self, rounds: int) -> None:
        if self.base.rows != "none":
            raise InputError(
                "strategy.server.base: TurboSVM's base must be an averaging strategy such as fedavg or fedadam"
            )
        super().check(rounds)
        if self.schedule != "constant" and self.schedule_rounds is not None and rounds > self.schedule_rounds:
            raise InputError(
                f"rounds={rounds}: the SVM's schedule ends after strategy.server.schedule_rounds="
                f"{self.schedule_rounds}; allowed: at most as many, or strategy.server.schedule_rounds=null"
            )

    def penalty(self, t: int, rounds: int) -> float:
        """C_t, the SVM's penalty in round t = 0, 1, .. of a run of ``rounds`` rounds."""
        total = rounds if self.schedule_rounds is None else self.schedule_rounds
        return {"decreasing": (total - t) / total, "increasing": (t + 1) / total, "constant": 1.0}[self.schedule]

    def chosen_classes(self, classes: int, round: Round) -> torch.Tensor:
        """The classes that enter this round's SVM, ascending."""
        share = self.classes_per_round
        count = share if isinstance(share, int) else math.floor(share * classes + 1e-9)
        count = min(max(count, 2), classes)
        if count == classes:
            return torch.arange(classes)
        draw = torch.randperm(classes, generator=generator(round.seed, "turbosvm-classes", round.index))
        return draw[:count].sort().values

    def refine(self, embeddings: torch.Tensor, update: CohortUpdate, round: Round) -> Refined:
        if not (self.selective or self.spread_out):
            return Refined(embeddings, None, {})
        assert update.rows is not None
        aggregate = embeddings.double().cpu()  # u [C, d]
        chosen = self.chosen_classes(round.layout.classes, round)
        uploads = round.layout.head_rows(update.rows, self.with_bias).double().cpu()[:, chosen]  # e [M, chosen, d]
        kernel = Kernel(self.kernel, self.gamma, self.coef0, self.degree)
        penalty = self.penalty(round.index, round.total)
        try:
            svm = fit(uploads, kernel, self.multiclass, penalty, self.tolerance, self.max_iterations)
        except ValueError as error:
            raise RunError(
                f"round {round.index + 1}: no SVM can be fitted to the clients' class embeddings "
                f"({str(error).splitlines()[0]}): local training diverged; a smaller local.lr usually helps"
            ) from None
        how = {"svm_penalty": penalty, "svm_stopped_early": float(svm.early_stops)}
        metrics = support_metrics(svm, chosen) | how
        if self.selective:
            supported = svm.support.any(1)
            aggregate[chosen[supported]] = support_means(svm, update.samples.double().cpu())[supported]
        if not self.spread_out:
            return Refined(aggregate, None, metrics)
        moving = aggregate[chosen].requires_grad_()
        loss = spread_out_loss(svm, kernel, moving)
        gradient = torch.zeros_like(aggregate)
        (gradient[chosen],) = torch.autograd.grad(loss, moving)
        return Refined(aggregate, gradient, metrics | {"spread_out_loss": loss.item()})


def support_means(svm: FittedSVM, samples: torch.Tensor) -> torch.Tensor:
    """Mean of each class's support vectors, weighted by n_k: float64 ``[C, d]`` (Algorithm 1's selective aggregation).

    A class without support vectors (its binary fits returned no coefficients) has NaN here.
    """
    # (W_c, b_c) ← Σ n_k e / Σ n_k over the support vectors of class c
    weights = svm.support * samples
    return torch.einsum("cm,cmd->cd", weights, svm.samples) / weights.sum(1, keepdim=True)


def support_metrics(svm: FittedSVM, chosen: torch.Tensor) -> dict[str, float]:
    """How many of the cohort's embeddings support each class."""
    counts = svm.support.sum(1).tolist()
    per_class = {f"support_vectors/{c}": float(n) for c, n in zip(chosen.tolist(), counts, strict=True)}
    return {"support_vectors": float(sum(counts)), **per_class}
