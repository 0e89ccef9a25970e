"""What is compared between settings: final and best metrics, rounds to targets, costs. Any metric is allowed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fedrun.config.suggestions import allowed_names
from fedrun.data.evaluation_split import pooled_names
from fedrun.data.targets import Target
from fedrun.data.tasks.metric_names import ESTIMATED_ACCURACY, lower_is_better
from fedrun.evaluation.rounds_to_target import describe
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.report.runs import Run
from fedrun.report.settings import Setting
from fedrun.runs.display import wording
from fedrun.runs.metrics_file import round_reached, series

SECONDS = "seconds"
"""The total time of a run, used like a cost's key."""

NOT_METRICS = ("cost/", "time/")
INTERNALS = "server/"
"""Metrics of a server strategy's own steps: drawn as curves; in a table only with ``--metric``."""

CLUSTERS = "clusters/"
"""The numbers of models, and of those that were trained."""

TRAINING = ("train/", "privacy/", "compress/", "secure_sum/", INTERNALS, CLUSTERS)
"""Metrics whose best value says nothing about the model: they are measured while it changes, or are not about it."""

OF_CLIENTS = ("clients/", "unseen/")
"""Metrics over clients."""

COUNTS = (
    "clients/excluded",
    "clients/late",
    "clients/staleness",
    "clients/staleness_max",
    "clients/participants",
    "clients/willing",
    "clients/untested",
    "clients/global_untested",
    "clients/tuned_untested",
    "unseen/untested",
    "unseen/tuned_untested",
)
"""Counts that are reported only where they are not zero."""

SIDES = pooled_names("attack_success")
"""Metrics of which more is better for an attack and worse for the server, so that none of their values is the best."""

ADAPTIVE = (ESTIMATED_ACCURACY, "evaluated")
"""Metrics of adaptive evaluations: the number of samples tested, and the accuracy on these if they are not all."""

Kind = Literal["final", "best", "rounds to", "seconds to", "cost"]

TO_TARGET: tuple[Kind, ...] = ("rounds to", "seconds to")


@dataclass(frozen=True)
class Quantity:
    """A number that a complete run has, or lacks.

    Attributes:
        kind: ``final`` (after the last round), ``best`` (of all evaluated rounds), ``rounds to`` a target
            (the first evaluated round that reaches it), ``seconds to`` it (virtual ones), or ``cost`` (in total).
        key: the metric, the target's name (``0.90``), or the cost's key; ``seconds`` is the run's own time.
    """

    kind: Kind
    key: str

    def known(self, run: Run) -> bool:
        """Whether a complete run shows it: an adaptive evaluation shows the run's own targets only, a run without a
        clock no virtual time.
        """
        if self.kind == "seconds to" and not is_timed(run):
            return False
        return self.kind not in TO_TARGET or run.shows_target(Target.named(self.key))

    @property
    def metric(self) -> str:
        """The metric's key, also a target's; a cost's key."""
        return Target.named(self.key).metric if self.kind in TO_TARGET else self.key

    @property
    def heading(self) -> str:
        if self.kind in TO_TARGET:
            to = f"to {wording.target(Target.named(self.key))}"
            return to if self.kind == "rounds to" else f"seconds {to}"
        if self.key == VIRTUAL_SECONDS:
            return "virtual seconds"
        if self.kind == "cost" or self.key.startswith("cost/"):
            return self.key.rpartition("/")[2].replace("_", " ")
        return wording.name(self.key)

    def of(self, run: Run) -> float | None:
        """The quantity of a complete run; None if it was not recorded, is not finite or was not reached."""
        if self.kind in TO_TARGET:
            target = Target.named(self.key)
            hit = round_reached(run.rows, target)
            if self.kind == "rounds to" or hit is None:
                return hit
            return finite(next(row.get(VIRTUAL_SECONDS) for row in run.rows if row["round"] == hit))
        if self.key == SECONDS and run.summary is not None:
            return finite(run.summary["seconds"])
        key = run.key_of(self.key)
        if self.kind == "best":
            known = [value for value in series(run.rows, key) if math.isfinite(value)]
            return (min if lower_is_better(key) else max)(known) if known else None
        return finite(run.rows[-1].get(key))


@dataclass(frozen=True)
class Measured:
    """A quantity over the seeds of a setting.

    Attributes:
        quantity: what was measured.
        values: one per complete run, None if a run has none; empty if not all of them show it.
        cap: the largest number of rounds of these runs. If some did not reach a target: the smallest number of rounds
            that one of those made, because a run that has reached all its own targets ends early.
    """

    quantity: Quantity
    values: tuple[float | None, ...]
    cap: int

    @classmethod
    def of(cls, quantity: Quantity, setting: Setting) -> Measured:
        runs = setting.complete
        values = tuple(map(quantity.of, runs)) if all(map(quantity.known, runs)) else ()
        without = [run.last_round for run, value in zip(runs, values, strict=False) if value is None]
        return cls(quantity, values, min(without, default=max((run.max_rounds for run in runs), default=0)))

    @property
    def known(self) -> list[float]:
        """The values, or nothing if any run has none: the mean of the others would be too good."""
        known = [value for value in self.values if value is not None]
        return known if len(known) == len(self.values) else []

    def __str__(self) -> str:
        """``71.23 ± 0.45`` (shares in percent); ``>200`` if a seed did not reach the target; ``-`` without value."""
        if self.quantity.kind == "rounds to":
            return describe([None if value is None else round(value) for value in self.values], self.cap)
        if self.quantity.kind == "seconds to":
            return f">{self.cap} rounds" if None in self.values else spread(VIRTUAL_SECONDS, self.known)
        return spread(self.quantity.key, self.known)


def spread(key: str, values: Sequence[float]) -> str:
    """Mean ± standard deviation (ddof 0) in the metric's own units; a single value, or an equal count, alone; ``-`` for
    none.
    """
    if not values:
        return wording.ABSENT
    shares, total = wording.is_share(key), key.startswith(("cost/", CLUSTERS))
    mean, std = statistics.mean(values), statistics.pstdev(values)  # fmean's sum of huge values would overflow
    if std < 1e-12 * abs(mean):
        std = 0.0  # the values differ by the rounding of their computation
    alone = len(set(values) if total else values) == 1  # counts are often the same for all seeds
    whole = mean >= 100 or all(float(number).is_integer() for number in (mean, std))  # a large count, or an exact one

    def write(number: float) -> str:
        if shares:
            return f"{100 * number:.2f}"
        if total:
            return f"{number:,.0f}" if whole else f"{number:.1f}"
        if key in (SECONDS, VIRTUAL_SECONDS):
            return f"{number:,.1f}"
        return wording.decimal(number, max(abs(mean), std))  # both in the form of the larger one

    return write(mean) if alone else f"{write(mean)} ± {write(std)}"


def is_internal(key: str) -> bool:
    """Whether a metric describes the work of a server or an evaluation, not the quality of a model."""
    return key.startswith(INTERNALS) or key.rpartition("/")[2] in ADAPTIVE


def has_best(key: str) -> bool:
    """Whether the best value of a metric says something about the model."""
    if key.startswith(OF_CLIENTS) and not wording.is_named(key):
        return False  # a count, or a metric of a rule of participation
    return not key.startswith(TRAINING) and key not in SIDES and not key.endswith("_std")


def finite(value: float | int | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def metrics(runs: Iterable[Run]) -> list[str]:
    """Every metric that some run recorded: the known ones first, then the others by name; no costs, no times."""
    keys: dict[str, bool] = {}
    for run in runs:
        for row in run.rows:
            for key, value in row.items():
                keys[key] = keys.get(key, False) or bool(value)
    named = [
        key
        for key, nonzero in keys.items()
        if key != "round" and not key.startswith(NOT_METRICS) and (nonzero or key not in COUNTS)
    ]
    known = wording.in_order(named)
    return [*known, *sorted(set(named) - set(known))]


def recorded_keys(runs: Sequence[Run]) -> list[str]:
    """Every metric that some run recorded, then the costs and times."""
    keys = {key for run in runs for row in run.rows for key in row}
    return [*metrics(runs), *sorted(key for key in keys if key.startswith(NOT_METRICS))]


def no_such_metric(key: str, allowed: Sequence[str]) -> str:
    """The message that no run has a metric, given those that may be named instead."""
    return f"{key}: no run has this metric{allowed_names(key, allowed, 'fedrun-report RUNS --format csv')}"


def costs(runs: Iterable[Run]) -> list[Quantity]:
    """Every cost that some run recorded and that is not zero everywhere, and the seconds."""
    keys = dict.fromkeys(
        key
        for run in runs
        for key, value in run.rows[-1].items()
        if (key.startswith("cost/") or key == VIRTUAL_SECONDS) and value
    )
    return [*(Quantity("cost", key) for key in keys), Quantity("cost", SECONDS)]


def targets(runs: Iterable[Run], more: Sequence[float] = ()) -> list[Target]:
    """Those targets of the runs that one of them shows, and more test accuracies, in ascending order."""
    shown = {
        target for run in runs for target in map(Target.of, run.config.get("targets") or ()) if run.shows_target(target)
    }
    return sorted(shown | set(map(Target.of, more)))


def to_targets(runs: Sequence[Run], more: Sequence[float] = ()) -> list[Quantity]:
    """The rounds to each of these targets; then, if some run has virtual time, this time to each of them."""
    kinds = TO_TARGET if any(map(is_timed, runs)) else TO_TARGET[:1]
    return [Quantity(kind, target.name) for kind in kinds for target in targets(runs, more)]


def is_timed(run: Run) -> bool:
    """Whether a run has virtual time."""
    return VIRTUAL_SECONDS in run.rows[-1]
