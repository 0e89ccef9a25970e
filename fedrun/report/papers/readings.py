"""How the numbers of a paper's table are read from a run: a metric's value, rounds to a target, or a speed-up."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Annotated, TypeAlias

from annotated_types import Ge, Gt, Le
from pydantic import Discriminator, Tag

from fedrun.config.config_class import config_class
from fedrun.report.papers.paper import Cell
from fedrun.runs.display import wording
from fedrun.system.errors import InputError


@config_class
class RoundsTo:
    """Rounds until the test accuracy reaches a target.

    Attributes:
        target: accuracy, a share.
        interpolated: false: the first evaluated round at or above it (TurboSVM-FL); true: where the running maximum,
            linear between evaluated rounds, reaches it, rounded up (McMahan et al.).
    """

    target: Annotated[float, Gt(0), Le(1)]
    interpolated: bool


@config_class
class Where:
    """Some cells of a table.

    Attributes:
        where: their coordinates: for each named one, its possible values.
    """

    where: dict[str, tuple[str, ...]]

    def holds(self, coordinates: Mapping[str, str]) -> bool:
        return all(coordinates.get(key) in values for key, values in self.where.items())


@config_class
class RoundOf(Where):
    """The round in which some cells are read.

    Attributes:
        where: the cells' coordinates.
        round: server updates made.
    """

    round: Annotated[int, Ge(1)]


@config_class
class ValueAt:
    """A metric's value in a round.

    Attributes:
        metric: as in ``metrics.jsonl``, such as ``test/f1``; or, if it depends on a coordinate, that coordinate with
            the metric for each of its values: ``{clients: {seen: clients/gm_appeal, unseen: unseen/gm_appeal}}``.
        round: server updates made; null: the last round. Shorter runs are read at their last round, with a note.
        rounds: rounds for some of the cells, instead of ``round``; optional.
    """

    metric: str | dict[str, dict[str, str]]
    round: Annotated[int, Ge(1)] | None
    rounds: tuple[RoundOf, ...] = ()

    def at(self, cell: Cell) -> int | None:
        """The round in which a cell is read, None for the last one."""
        return next((special.round for special in self.rounds if special.holds(cell.coordinates)), self.round)

    def key(self, cell: Cell) -> str:
        """The metric of a cell.

        Raises:
            InputError: it depends on a coordinate, and is not given for this cell's value of it.
        """
        if isinstance(self.metric, str):
            return self.metric
        for coordinate, metrics in self.metric.items():
            if (value := cell.coordinates.get(coordinate)) in metrics:
                return metrics[value]
        raise InputError(f"{cell.paper} {cell.table}: its experiment does not say how {cell.metric} is read everywhere")

    @property
    def keys(self) -> tuple[str, ...]:
        """All metrics that it reads."""
        if isinstance(self.metric, str):
            return (self.metric,)
        return tuple(chain.from_iterable(metrics.values() for metrics in self.metric.values()))


@config_class
class SpeedUp:
    """Mean rounds of a reference cell over mean rounds of this one.

    Attributes:
        reference: the coordinates in which the reference differs, such as ``{"C": "0.0"}``.
    """

    reference: dict[str, str]


def _own_key(reading: object) -> str | None:
    """The key by which a way of reading a cell is known; None if it has none."""
    keys = reading if isinstance(reading, Mapping) else dir(reading)
    return next((key for key in ("target", "metric", "reference") if key in keys), None)


FORMS = "{target: .., interpolated: ..}, {metric: .., round: ..} or {reference: ..}"

Reading: TypeAlias = Annotated[
    Annotated[RoundsTo, Tag("target")] | Annotated[ValueAt, Tag("metric")] | Annotated[SpeedUp, Tag("reference")],
    Discriminator(_own_key, custom_error_type="form", custom_error_message=f"allowed: {FORMS}"),
]
"""How a metric's cells are read; in a file, the keys say which of the three it is."""


def unit_of(reading: Reading) -> str:
    """The unit of a cell whose paper's number is not known."""
    if isinstance(reading, ValueAt):
        return "%" if all(map(wording.is_share, reading.keys)) else "number"
    return "rounds" if isinstance(reading, RoundsTo) else "x"
