"""Targets: values of metrics whose first round is reported."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrun.data.evaluation_split import TARGETED
from fedrun.data.tasks.metric_names import ESTIMATE, lower_is_better
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from fedrun.data.tasks.base import Task

PARTS = ("test", "train", "clients", "unseen")
"""What metrics with targets are computed on: the first parts of their names."""


@dataclass(frozen=True, order=True)
class Target:
    """A value that a metric should reach: at least the value, or at most the value if less is better.

    Attributes:
        metric: as in a row of ``metrics.jsonl``, such as ``test/accuracy``.
        value: the value.
    """

    metric: str
    value: float

    @classmethod
    def of(cls, entry: float | str) -> Target:
        """An item of the key ``targets``: a test accuracy, or a string such as ``test/perplexity:40``.

        Raises:
            InputError: it is neither.
        """
        metric, _, value = entry.rpartition(":") if isinstance(entry, str) else (TARGETED, "", entry)
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        part, _, name = metric.strip().rpartition("/")
        impossible = metric.strip() == TARGETED and not 0 < number <= 1
        if impossible or not (part and name and math.isfinite(number)):
            raise InputError(
                f"targets: {entry!r}; allowed: a test accuracy above 0, at most 1, or METRIC:VALUE, such as "
                "test/perplexity:40"
            )
        return cls(metric.strip(), number)

    @property
    def name(self) -> str:
        """``0.70``, ``0.975`` for test accuracies; otherwise ``test/perplexity:40``."""
        if self.metric != TARGETED:
            short = f"{self.value:g}"
            return f"{self.metric}:{short if float(short) == self.value else repr(self.value)}"
        return f"{self.value:.2f}" if round(self.value, 2) == self.value else repr(self.value)

    @classmethod
    def named(cls, name: str) -> Target:
        """The inverse of :attr:`name`."""
        return cls.of(name if ":" in name else float(name))

    @property
    def sign(self) -> int:
        """−1 if less is better, otherwise 1."""
        return -1 if lower_is_better(self.metric) else 1

    def reached(self, value: float) -> bool:
        """Whether a value of the metric reaches the target."""
        return self.sign * value >= self.sign * self.value


def check_recorded(targets: Iterable[Target], metrics: Iterable[str]) -> None:
    """Reject targets of metrics that a run does not record.

    Args:
        targets: the run's.
        metrics: names of its first evaluated round's: with ``_estimate``, where an evaluation stopped early, and
            without ``train/*``, if no client took part.

    Raises:
        InputError: naming the metric and those that the run records.
    """
    recorded = {name.removesuffix(ESTIMATE) for name in metrics}
    parts = {name.partition("/")[0] for name in recorded}
    for target in targets:
        if target.metric not in recorded and ("train" in parts or not target.metric.startswith("train/")):
            allowed = sorted(name for name in recorded if name.partition("/")[0] in PARTS)
            raise InputError(f"targets: the run records no {target.metric}; allowed: {', '.join(allowed)}")


def check_targets(entries: Iterable[float | str], task: Task) -> None:
    """Reject targets of metrics that no run on a task has.

    Raises:
        InputError: naming the metric and those that the task has.
    """
    known = ("loss", *task.measures)
    for target in map(Target.of, entries):
        part, _, metric = target.metric.rpartition("/")
        allowed = ", ".join(f"test/{name}" for name in known)
        if part not in PARTS:
            raise InputError(
                f"targets: {target.metric} is not a metric; allowed: {allowed}, or one of {', '.join(PARTS[1:])}"
            )
        if part == "test" and metric not in known:
            raise InputError(
                f"targets: the dataset's task, {task.name}, has no {target.metric}; allowed: {allowed}, such as "
                f"targets=[test/{known[1]}:0.5], or targets=[]"
            )
