"""Whether models are evaluated on test samples or on validation samples, and the metrics' names that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

EvaluationSplit = Literal["test", "validation"]
EVALUATION_SPLITS: tuple[EvaluationSplit, ...] = get_args(EvaluationSplit)


def pooled_name(split: EvaluationSplit, metric: str) -> str:
    """The name of a metric of the pooled samples, such as ``validation/accuracy``."""
    return f"{split}/{metric}"


def pooled_names(metric: str) -> tuple[str, ...]:
    """The names of a metric on every split."""
    return tuple(pooled_name(split, metric) for split in EVALUATION_SPLITS)


def recorded_split(row: Mapping[str, object]) -> EvaluationSplit:
    """The split that a row of metrics was recorded on."""
    return "validation" if any(name.startswith(pooled_name("validation", "")) for name in row) else "test"


def pooled_metric(row: Mapping[str, float | int | None], metric: str) -> float | int | None:
    """A metric of the pooled samples of a row; None if it was not recorded."""
    return row.get(pooled_name(recorded_split(row), metric))


TARGETED = pooled_name("test", "accuracy")
"""The metric of targets that are plain numbers."""
