"""Protocols: how each cell of a paper's table is produced by fedrun, and how its number is read off the runs.

A protocol is a YAML file ``papers/PAPER/TABLE.yaml``; the sweep that makes its runs is ``experiment=PAPER/TABLE``.
Which run belongs to a cell is not written down a second time: a cell's coordinates say what would have to be asked for
on the command line, that is composed, and the run with this configuration is the cell's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

from annotated_types import Ge, Gt
from pydantic import TypeAdapter, ValidationError

from fedrun.config.as_config import Plain
from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.report.papers.paper import FOLDER, Cell, cells
from fedrun.system.errors import InputError

Scale: TypeAlias = Literal["full", "small", "smoke"]
SCALES: tuple[Scale, ...] = get_args(Scale)

T = TypeVar("T")

Overrides: TypeAlias = tuple[str, ...]
"""What would be asked for on the command line, such as ``("dataset=femnist",)``."""


@config_class
class RoundsTo:
    """Rounds until the test accuracy reaches a target.

    Attributes:
        target: accuracy, a share.
        interpolated: false: the first evaluated round at or above it (TurboSVM-FL); true: where the running maximum,
            linear between evaluated rounds, reaches it, rounded up (McMahan et al.).
    """

    target: Annotated[float, Gt(0)]
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
        metric: as in ``metrics.jsonl``, such as ``test/f1``; or, where it depends on a coordinate, that coordinate with
            the metric for each of its values: ``{clients: {seen: clients/gm_appeal, unseen: unseen/gm_appeal}}``.
        round: server updates made; null: the last round. Shorter runs are read at their last round, with a note.
        rounds: of some cells, in the place of ``round``; may be left out.
    """

    metric: str | dict[str, dict[str, str]]
    round: Annotated[int, Ge(1)] | None
    rounds: tuple[RoundOf, ...] = ()

    def at(self, cell: Cell) -> int | None:
        """The round in which a cell is read, None for the last one."""
        return next((own.round for own in self.rounds if own.holds(cell.coordinates)), self.round)

    def key(self, cell: Cell) -> str:
        """The metric of a cell.

        Raises:
            InputError: it depends on a coordinate, and not for this cell's value of it.
        """
        if isinstance(self.metric, str):
            return self.metric
        for coordinate, metrics in self.metric.items():
            if (value := cell.coordinates.get(coordinate)) in metrics:
                return metrics[value]
        raise InputError(f"{cell.paper} {cell.table}: the protocol does not say how {cell.metric} is read everywhere")


@config_class
class SpeedUp:
    """Mean rounds of a reference cell over mean rounds of this one.

    Attributes:
        reference: the coordinates in which the reference differs, such as ``{"C": "0.0"}``.
    """

    reference: dict[str, str]


Reading: TypeAlias = RoundsTo | ValueAt | SpeedUp


@config_class
class OutOfReach(Where):
    """Cells that fedrun does not produce.

    Attributes:
        where: the cells' coordinates.
        reason: why not; part of a sentence.
    """

    reason: str


@config_class
class Extra(Where):
    """Cells for which something more is asked for than their coordinates mean one by one.

    Attributes:
        where: the cells' coordinates.
        overrides: what is asked for besides.
        scales: at which this holds.
    """

    overrides: Overrides
    scales: tuple[Scale, ...]


@config_class
class Opened(Where):
    """Cells of which a parameter is not known: they are produced for several values of it.

    Attributes:
        where: the cells' coordinates.
        coordinate: that the cells get besides.
        values: of it; there is a cell for each, all with the paper's one number.
    """

    coordinate: str
    values: tuple[str, ...]


@config_class
class Protocol:
    """How a paper's table is produced and compared.

    Attributes:
        title: of the table.
        paper: as in the papers' CSV files.
        table: as in the CSV file.
        runs: the experiment whose sweep makes the runs, such as ``turbosvm/table2``: the table itself, or one that is
            read off the same runs.
        coordinates: for every coordinate of the cells but the metric, the overrides that its values mean: one with
            ``{}`` in the value's place, or a list for each value. Coordinates that mean something only together share
            an entry: ``kernel server_lr``, with values such as ``poly2 1e-4``.
        metrics: how each metric of the table is read off a run.
        columns: coordinates laid out from left to right; the others that vary go from top to bottom.
        blocks: coordinates for each of whose values a table of its own is printed.
        opened: cells that are there once for each value of what the paper leaves open; may be left out.
        extras: what is asked for besides for some cells; may be left out.
        out_of_reach: cells that are not produced, at any scale.
        stand_ins: for a smaller scale, other overrides for the values of some coordinates; cells with other values of
            these coordinates are left out at that scale.
        notes: what a reader of the table has to know.
    """

    title: str
    paper: str
    table: str
    runs: str
    coordinates: dict[str, str | dict[str, Overrides]]
    metrics: dict[str, Reading]
    columns: tuple[str, ...]
    blocks: tuple[str, ...]
    out_of_reach: tuple[OutOfReach, ...]
    stand_ins: dict[Scale, dict[str, dict[str, Overrides]]]
    notes: tuple[str, ...]
    opened: tuple[Opened, ...] = ()
    extras: tuple[Extra, ...] = ()

    def cells(self) -> list[Cell]:
        """The table's cells."""
        found = cells(self.paper, self.table)
        for opened in self.opened:
            found = [
                replace(cell, setting={**cell.setting, opened.coordinate: value}) if value else cell
                for cell in found
                for value in (opened.values if opened.holds(cell.coordinates) else ("",))
            ]
        return found

    def run_name(self, scale: Scale) -> str:
        """The ``name`` of the runs at a scale, the first part of their folders."""
        return named(self.runs, scale)

    def reason(self, cell: Cell) -> str | None:
        """Why a cell is out of reach, None where it is not."""
        return next((entry.reason for entry in self.out_of_reach if entry.holds(cell.coordinates)), None)

    def overrides(self, cell: Cell, scale: Scale) -> Overrides | None:
        """What the cell's run is asked for with, None where the cell is not produced at this scale.

        Raises:
            InputError: the protocol does not know a coordinate of the cell or its value.
        """
        if self.reason(cell) is not None:
            return None
        stand_ins = self.stand_ins.get(scale, {})
        found: list[str] = []
        for key, value in self.entries(cell).items():
            if key in stand_ins:
                if value not in stand_ins[key]:
                    return None
                found += stand_ins[key][value]
                continue
            found += self.meaning(key, value)
        for extra in self.extras:
            if scale in extra.scales and extra.holds(cell.coordinates):
                found += extra.overrides
        return tuple(found)

    def stands_in(self, cell: Cell, scale: Scale) -> bool:
        """Whether the cell's run at this scale is of something else than the paper's, such as other data."""
        stand_ins = self.stand_ins.get(scale, {})
        return any(
            stand_ins[key].get(value) != self.meaning(key, value)
            for key, value in self.entries(cell).items()
            if key in stand_ins
        )

    def entries(self, cell: Cell) -> dict[str, str]:
        """The entries of ``coordinates`` that a cell's coordinates belong to, each with its value."""
        own = {name: value for name, value in cell.coordinates.items() if name != "metric"}
        shared = {name: key for key in self.coordinates for name in key.split()}
        keys = dict.fromkeys(shared.get(name, name) for name in own)
        return {key: " ".join(own[name] for name in key.split() if name in own) for key in keys}

    def meaning(self, key: str, value: str) -> Overrides:
        """What the value of a coordinate, or of several together, means on the command line.

        Raises:
            InputError: the protocol does not say.
        """
        meaning = self.coordinates.get(key)
        if isinstance(meaning, str):
            return (meaning.format(value),)
        if meaning is None or value not in meaning:
            raise InputError(f"{self.paper} {self.table}: the protocol does not say what {key}={value} means")
        return meaning[value]

    def reading(self, cell: Cell) -> Reading:
        """How the cell's number is read.

        Raises:
            InputError: the protocol does not say.
        """
        try:
            return self.metrics[cell.metric]
        except KeyError:
            raise InputError(f"{self.paper} {self.table}: the protocol does not read {cell.metric}") from None


def reference(cell: Cell, speed_up: SpeedUp, table: Sequence[Cell], protocol: Protocol) -> tuple[int, int]:
    """Positions of the two cells of rounds that a speed-up is the ratio of: the reference's and the cell's own.

    Raises:
        InputError: the table has none.
    """
    rounds = {
        tuple(sorted({**candidate.coordinates, "metric": ""}.items())): position
        for position, candidate in enumerate(table)
        if isinstance(protocol.metrics.get(candidate.metric), RoundsTo)
    }
    own = {**cell.coordinates, "metric": ""}
    try:
        return rounds[tuple(sorted({**own, **speed_up.reference}.items()))], rounds[tuple(sorted(own.items()))]
    except KeyError:
        raise InputError(f"{protocol.paper} {protocol.table}: no rounds for the speed-up at {own}") from None


def named(experiment: str, scale: Scale) -> str:
    """An experiment at a scale, such as ``turbosvm/table2/small``; at scale full it has no suffix."""
    return experiment if scale == "full" else f"{experiment}/{scale}"


def asked_with(experiment: str, scale: Scale | None) -> str:
    """What an experiment at a scale, or at the usual one, is asked for with on the command line."""
    return f"experiment={experiment}" if scale in (None, "full") else f"experiment={experiment} scale={scale}"


def protocols() -> list[str]:
    """The tables that can be compared, such as ``turbosvm/table2``, in the papers' order."""
    names = (path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/table*.yaml"))
    return sorted(names, key=by_number)


def by_number(name: str) -> list[str | int]:
    """A key to sort names by in which table 9 comes before table 10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def load(name: str) -> Protocol:
    """The protocol of a table.

    Raises:
        InputError: there is none, or its file is damaged.
    """
    if name not in protocols():
        raise InputError(f"table {name}: no such table; allowed: {', '.join(protocols())}")
    return described(FOLDER / f"{name}.yaml", Protocol)


def described(path: Path, kind: type[T]) -> T:
    """The object that a YAML file describes.

    Raises:
        InputError: the file is damaged.
    """
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(OmegaConf.load(path))
    try:
        return TypeAdapter(kind).validate_json(json.dumps(content))  # JSON's arrays may become tuples
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def plan(name: str, protocol: Protocol, scale: Scale) -> dict[int, Plain]:
    """The configuration of each cell that is produced at a scale, under the cell's position in the table.

    Raises:
        InputError: the protocol or the experiment cannot be composed.
    """
    asked = {position: protocol.overrides(cell, scale) for position, cell in enumerate(protocol.cells())}
    return {
        position: config((f"experiment={name}", f"scale={scale}", *overrides))
        for position, overrides in asked.items()
        if overrides is not None
    }


@cache
def config(overrides: Overrides) -> Plain:
    """A composed configuration. It takes a tenth of a second, and many cells share theirs."""
    return compose(overrides).config
