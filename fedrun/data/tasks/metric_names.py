"""Properties of a metric by its name, for readers of files: the task's own metrics, and whether less is better."""

from __future__ import annotations

from collections.abc import Iterable

from fedrun.data.evaluation_split import EVALUATION_SPLITS

LOWER_IS_BETTER = frozenset({"loss", "error", "mae", "mse", "rmse", "perplexity", "brier", "ece"})
"""Words in the names of metrics for which less is better."""

CLASSIFICATION_MEASURES = ("accuracy", "f1", "mcc")
"""The metrics of a classification."""

MEANS = ("participants", "all")
"""The clients whose mean model is evaluated by ``evaluation.client_means``."""

ESTIMATE = "_estimate"
"""The ending of the name that replaces a metric's if an adaptive evaluation stopped early."""

ESTIMATED_ACCURACY = f"accuracy{ESTIMATE}"
"""The metric of such an evaluation."""

OF_GLOBAL, OF_TUNED = "global_", "tuned_"
"""Prefixes of clients' metrics by the global model next to the clients' own, and by the tuned global model."""

APART = ("loss", "evaluated", "attack_success")
ENDINGS_APART = (ESTIMATE, *(f"_of_{clients}" for clients in MEANS))
"""Metrics of pooled samples that are not the task's, and endings of their names."""


def lower_is_better(metric: str) -> bool:
    """Whether less of a metric is better, as for ``test/loss`` and ``clients/mae_mean``."""
    return not LOWER_IS_BETTER.isdisjoint(metric.rpartition("/")[2].split("_"))


def measures(metrics: Iterable[str]) -> list[str]:
    """The task's metrics, the score first, among recorded metrics such as ``test/mae``, in their order.

    See :attr:`fedrun.data.tasks.base.Task.measures`.
    """
    pooled = [name for part, _, name in (metric.rpartition("/") for metric in metrics) if part in EVALUATION_SPLITS]
    return list(dict.fromkeys(name for name in pooled if name not in APART and not name.endswith(ENDINGS_APART)))


def recorded_score(metrics: Iterable[str]) -> str:
    """The task's score among recorded metrics such as ``test/mae``; ``accuracy`` if there is none."""
    return next(iter(measures(metrics)), "accuracy")
