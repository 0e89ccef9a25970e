"""How metrics are named and numbers are written, the same in every display, table and plot."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedrun.data.evaluation_split import EVALUATION_SPLITS, TARGETED
from fedrun.data.targets import Target
from fedrun.data.tasks.metric_names import ESTIMATE, MEANS, OF_GLOBAL, OF_TUNED, measures

NAMES = {
    "accuracy": "accuracy",
    "subset_accuracy": "subset accuracy",
    "token_accuracy": "token accuracy",
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R²",
    "perplexity": "perplexity",
    "map": "mAP",
    "f1": "F1",
    "mcc": "MCC",
    "loss": "loss",
    "attack_success": "attack success",
    "epsilon": "ε",
    "gm_appeal": "GM-Appeal",
    "preferred_accuracy": "preferred accuracy",
    "reported": "reported accuracy",
}
"""The part of a known metric's key after the slash, as people write it."""

ENDINGS = {
    ESTIMATE: "estimated {}",
    "_mean": "mean {}",
    "_std": "std of {}",
    "_worst_tenth": "{} of the worst tenth",
    "_weighted": "{} by samples",
    **{f"_of_{clients}": f"{{}} of {clients}" for clients in MEANS},
}
"""Endings of the names of metrics that summarise another one, and how people write them."""

NUMBERS = frozenset({"mae", "rmse", "r2", "perplexity", "loss", "epsilon"})
"""Known metrics that are not shares."""

MODELS = {OF_TUNED: "tuned", OF_GLOBAL: "global"}
"""Prefixes of metrics by another model than the usual one, and how people write them."""

ABSENT = "-"


def name(key: str) -> str:
    """``test/f1`` → ``test F1``."""
    part = key.rpartition("/")[0]
    metric, ending, model = _parts(key)
    return " ".join(filter(None, (part, model, ENDINGS.get(ending, "{}").format(_words(metric)))))


def _words(metric: str) -> str:
    return NAMES.get(metric, metric.replace("_", " "))


def _parts(key: str) -> tuple[str, str, str]:
    """``clients/tuned_f1_mean`` → ``f1``, ``_mean``, ``tuned``: the metric, its ending and its model's name."""
    metric = key.rpartition("/")[2]
    begin = next((begin for begin in MODELS if metric.startswith(begin)), "")
    metric = metric.removeprefix(begin)
    ending = next((ending for ending in ENDINGS if metric not in NAMES and metric.endswith(ending)), "")
    return metric.removesuffix(ending), ending, MODELS.get(begin, "")


def is_named(key: str) -> bool:
    """Whether a metric is a known one, or summarises another one, as ``clients/dice_mean``."""
    metric, ending, _ = _parts(key)
    return metric in NAMES or bool(ending)


def is_loss(key: str) -> bool:
    """Whether a metric is a loss, whose curve is drawn on a logarithmic axis."""
    return "loss" in key.rpartition("/")[2].split("_")


def is_share(key: str) -> bool:
    """Whether a metric is written in percent: all known ones except :data:`NUMBERS` are."""
    metric = _parts(key)[0]
    return metric in NAMES and metric not in NUMBERS


def value(key: str, number: float | None) -> str:
    """A metric's value: ``71.23 %`` for a share, ``0.9321`` for everything else."""
    return percent(number) if is_share(key) else decimal(number)


def percent(share: float | None) -> str:
    """``0.71234`` → ``71.23 %``."""
    if share is None:
        return ABSENT
    return f"{100 * share:.2f} %" if math.isfinite(share) else str(share)


def decimal(number: float | None, size: float | None = None) -> str:
    """Four decimals, or four significant digits of something huge or tiny, as the loss of a diverging run.

    Args:
        number: what is written.
        size: the number whose size decides, if it is another one.
    """
    if number is None:
        return ABSENT
    size = abs(number if size is None else size)
    ordinary = not size or 1e-3 <= size < 10_000 or not math.isfinite(size)
    return f"{number:.4f}" if ordinary else f"{number:.3e}"


def counted(number: int, noun: str) -> str:
    """``1 round``, ``30 rounds``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def target(goal: Target) -> str:
    """``70 %``, ``92.5 %`` for test accuracies; with the metric for others: ``test perplexity 40``."""
    number = f"{100 * goal.value:.6g} %" if is_share(goal.metric) else f"{goal.value:g}"
    return number if goal.metric == TARGETED else f"{name(goal.metric)} {number}"


def hit(round: int | None, cap: int) -> str:
    """The round in which a target was reached, or ``>cap``."""
    return f">{cap}" if round is None else str(round)


def duration(seconds: float) -> str:
    """``0.84`` → ``0.8 s``, ``42`` → ``42 s``, ``4000`` → ``1:06:40``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02} min"


def rate(per_second: float) -> str:
    """Three digits or all of them: ``0.0312``, ``3.41``, ``12,346``."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def in_order(keys: Iterable[str]) -> list[str]:
    """Test, validation and train first, then the rest; only known metrics and the task's own, no counts and times."""
    keys = list(keys)
    known = list(dict.fromkeys((*(_parts(measure)[0] for measure in measures(keys)), *NAMES)))
    parts, endings = [*EVALUATION_SPLITS, "train"], ["", *ENDINGS]

    def place(key: str) -> tuple[int, str, str, bool, int, int]:
        part = key.rpartition("/")[0]
        metric, ending, model = _parts(key)
        number = parts.index(part) if part in parts else len(parts)
        return number, part, model, bool(ending), known.index(metric), endings.index(ending)

    return sorted((key for key in keys if _parts(key)[0] in known), key=place)
