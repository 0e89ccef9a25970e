"""Properties of a metric by its name, for readers of files: whether less is better, and which is the task's score."""

from __future__ import annotations

from collections.abc import Iterable

SCORES = ("accuracy", "subset_accuracy", "token_accuracy", "mae")
""":attr:`fedrun.data.tasks.base.Task.score` of every task."""

MEASURES = (*SCORES, "rmse", "r2", "perplexity", "map", "f1", "mcc")
"""The metrics of the pooled samples of all tasks, without the loss, in the order in which they are shown."""

LOWER_IS_BETTER = frozenset({"loss", "mae", "rmse", "perplexity"})
"""Words in the names of metrics for which less is better."""


def lower_is_better(metric: str) -> bool:
    """Whether less of a metric is better, as for ``test/loss`` and ``clients/mae_mean``."""
    return not LOWER_IS_BETTER.isdisjoint(metric.rpartition("/")[2].split("_"))


def recorded_score(metrics: Iterable[str]) -> str:
    """The task's score among the names of recorded metrics such as ``test/mae``; ``accuracy`` if there is none."""
    names = {metric.rpartition("/")[2] for metric in metrics}
    return next((score for score in SCORES if score in names), SCORES[0])
