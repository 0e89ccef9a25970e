"""How metrics are named and numbers are written, the same in every display, table and plot."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedrun.data.evaluation_split import EVALUATION_SPLITS, TARGETED
from fedrun.data.targets import Target

MEANS = ("participants", "all")
"""Whose mean model is evaluated by ``evaluation.client_means``."""

SCORES = {
    "accuracy": "accuracy",
    "subset_accuracy": "subset accuracy",
    "token_accuracy": "token accuracy",
    "mae": "MAE",
}
"""The score of each task, as people write it."""

NAMES = {
    "accuracy": "accuracy",
    "accuracy_estimate": "estimated accuracy",
    **SCORES,
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
    **{
        key: words
        for score, name in SCORES.items()
        for key, words in {
            f"{score}_mean": f"mean {name}",
            f"{score}_std": f"std of {name}",
            f"{score}_worst_tenth": f"{name} of the worst tenth",
            f"{score}_weighted": f"{name} by samples",
        }.items()
    },
    "loss_mean": "mean loss",
    **{f"{score}_of_{models}": f"{name} of {models}" for score, name in SCORES.items() for models in MEANS},
}
"""The part of a metric's key after the slash, as people write it."""

NUMBERS = frozenset({"mae", "rmse", "r2", "perplexity", "epsilon"})
"""Words in the names of known metrics that are not shares; losses are not shares either."""

MODELS = {"tuned_": "tuned", "global_": "global"}
"""Prefixes of metrics of a tuned model, or of the global model next to the clients' own."""

ABSENT = "-"


def name(key: str) -> str:
    """``test/f1`` → ``test F1``."""
    part, _, metric = key.rpartition("/")
    plain, model = _plain(metric)
    return " ".join(filter(None, (part, model, NAMES.get(plain, plain.replace("_", " ")))))


def _plain(metric: str) -> tuple[str, str]:
    """A metric without the prefix of its model, and the model's name."""
    for begin, model in MODELS.items():
        if metric.startswith(begin):
            return metric.removeprefix(begin), model
    return metric, ""


def is_loss(key: str) -> bool:
    """Whether a metric is a loss, whose curve is drawn on a logarithmic axis."""
    return "loss" in key.rpartition("/")[2].split("_")


def is_share(key: str) -> bool:
    """Whether a metric is written in percent: all known ones except losses and :data:`NUMBERS` are."""
    metric = _plain(key.rpartition("/")[2])[0]
    return metric in NAMES and not is_loss(key) and NUMBERS.isdisjoint(metric.split("_"))


def value(key: str, number: float | None) -> str:
    """A metric's value: ``71.23 %`` for a share, ``0.9321`` for everything else."""
    return percent(number) if is_share(key) else decimal(number)


def percent(share: float | None) -> str:
    """``0.71234`` → ``71.23 %``."""
    if share is None:
        return ABSENT
    return f"{100 * share:.2f} %" if math.isfinite(share) else str(share)


def decimal(number: float | None) -> str:
    """Four decimals, or four significant digits of something huge or tiny, as the loss of a diverging run."""
    if number is None:
        return ABSENT
    ordinary = not number or 1e-3 <= abs(number) < 10_000 or not math.isfinite(number)
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
    """Known metrics, test, validation and train first, then the rest; unknown ones (counts, times) are left out."""
    known = [key for key in keys if _plain(key.rpartition("/")[2])[0] in NAMES]
    parts = [*EVALUATION_SPLITS, "train"]
    metrics = list(NAMES)

    def place(key: str) -> tuple[int, str, str, int]:
        part, _, metric = key.rpartition("/")
        plain, model = _plain(metric)
        return (parts.index(part) if part in parts else len(parts), part, model, metrics.index(plain))

    return sorted(known, key=place)
