"""How a paper's table is read from a sweep's runs: ``hydra.sweeper.table`` of ``experiment/PAPER/TABLE.yaml``.

The sweep defines the runs. The table defines which overrides each coordinate of a cell means; a cell is read from the
runs whose configuration has all these values.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints

from annotated_types import Ge, Gt, Le
from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from fedrun.config.config_class import config_class
from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import Scale
from fedrun.config.options import config_dir_option, files_in, option_files, options
from fedrun.report.papers.job_values import override_values
from fedrun.report.papers.own_cells import own_cells
from fedrun.report.papers.paper import Cell, cells, numbers_file
from fedrun.runs.display import wording
from fedrun.system.errors import InputError

T = TypeVar("T")

Overrides: TypeAlias = tuple[str, ...]
"""Conditions on a run's configuration, written as on the command line, such as ``("dataset=femnist",)``."""


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


@config_class
class OutOfReach(Where):
    """Cells that fedrun does not produce.

    Attributes:
        where: the cells' coordinates.
        reason: why not; part of a sentence.
    """

    reason: str


@config_class
class UnknownParameter(Where):
    """Cells with an unknown parameter, which are produced for several of its values.

    Attributes:
        where: the cells' coordinates.
        coordinate: name of the parameter, which becomes a coordinate of the cells.
        values: the parameter's values; there is a cell for each, all with the paper's one number.
    """

    coordinate: str
    values: tuple[str, ...]


@config_class
class TableReading:
    """How a paper's table is read from the runs.

    Attributes:
        experiment: name of the experiment with this table, such as ``turbosvm/table2``; not written in the file.
        title: the table's title.
        number: the table's number, as in the file of the paper's numbers; empty without such a file.
        coordinates: the overrides for each value of every coordinate of the cells but the metric: one with
            ``{}`` in the value's place, or a list for each value. Coordinates that mean something only together share
            an entry: ``kernel server_lr``, with values such as ``poly2 1e-4``.
        metrics: how each metric is read from a run.
        columns: coordinates laid out from left to right; the others that vary go from top to bottom.
        notes: notes on the table, under any name; null removes a note that is inherited from another table.
        blocks: coordinates; a separate table is printed for each of their values.
        unknown_parameters: cells repeated for each value of a parameter that the paper does not give.
        out_of_reach: cells that are not produced, at any scale.
        stand_ins: by scale, what values of coordinates mean there instead, such as other data.
    """

    experiment: str
    title: str
    number: str = ""
    coordinates: dict[str, str | dict[str, Overrides]]
    metrics: dict[str, Reading]
    columns: tuple[str, ...] = ()
    notes: dict[str, str | None] = field(default_factory=dict)
    blocks: tuple[str, ...] = ()
    unknown_parameters: tuple[UnknownParameter, ...] = ()
    out_of_reach: tuple[OutOfReach, ...] = ()
    stand_ins: dict[Scale, dict[str, dict[str, Overrides]]] | None = None

    @property
    def file(self) -> Path:
        """The experiment's file."""
        return option_files("experiment")[self.experiment]

    def cells(self) -> list[Cell]:
        """The table's cells: the paper's, or without a file of its numbers those that the sweep makes.

        Raises:
            InputError: the file is damaged, or has no such table.
        """
        numbers = numbers_file(self.experiment)
        if numbers.is_file():
            table = cells(numbers, self.number)
        else:
            units = {metric: unit_of(reading) for metric, reading in self.metrics.items()}
            table = own_cells(self.experiment, self.coordinates, units)
        for unknown in self.unknown_parameters:
            table = [
                replace(cell, setting={**cell.setting, unknown.coordinate: value}) if value else cell
                for cell in table
                for value in (unknown.values if unknown.holds(cell.coordinates) else ("",))
            ]
        return table

    def reason(self, cell: Cell) -> str | None:
        """Why a cell is out of reach; None if it is not."""
        return next((entry.reason for entry in self.out_of_reach if entry.holds(cell.coordinates)), None)

    def conditions(self, cell: Cell, scale: Scale) -> Overrides:
        """What the configuration of a cell's runs has at a scale.

        Raises:
            InputError: the experiment does not say what a coordinate of the cell or its value means.
        """
        meanings = {key: self.meaning(key, value) for key, value in self.entries(cell).items()}
        return tuple(chain.from_iterable({**meanings, **self.substitutes(cell, scale)}.values()))

    def substitutes(self, cell: Cell, scale: Scale) -> dict[str, Overrides]:
        """The entries of ``coordinates`` that are substituted at a scale, with their substitutes."""
        stand_ins = (self.stand_ins or {}).get(scale, {})
        return {
            key: stand_ins[key][value]
            for key, value in self.entries(cell).items()
            if value in stand_ins.get(key, {}) and stand_ins[key][value] != self.meaning(key, value)
        }

    def entries(self, cell: Cell) -> dict[str, str]:
        """The entries of ``coordinates`` that a cell's coordinates belong to, each with its value."""
        coordinates = {name: value for name, value in cell.coordinates.items() if name != "metric" and value}
        shared = {name: key for key in self.coordinates for name in key.split()}
        keys = dict.fromkeys(shared.get(name, name) for name in coordinates)
        return {key: " ".join(coordinates[name] for name in key.split() if name in coordinates) for key in keys}

    @property
    def origin(self) -> Path | str:
        """What has the table's cells: the file of the paper's numbers, or the sweep."""
        numbers = numbers_file(self.experiment)
        return numbers if numbers.is_file() else "a job of the sweep"

    def error(self, part: str, problem: str) -> InputError:
        """An error in a part of the table's description."""
        return InputError(f"{self.file}: hydra.sweeper.table.{part}: {problem}")

    def meaning(self, key: str, value: str) -> Overrides:
        """What the value of a coordinate, or of several together, means on the command line.

        Raises:
            InputError: the experiment does not say.
        """
        meaning = self.coordinates.get(key)
        if isinstance(meaning, str):
            return (meaning.format(value),)
        if meaning is None:
            raise self.error(
                "coordinates", f"{key} is missing, which {self.origin} has; allowed: {listed(self.coordinates)}"
            )
        if value not in meaning:
            raise self.error(
                f"coordinates.{key}", f"{value} is missing, which {self.origin} has; allowed: {listed(meaning)}"
            )
        return meaning[value]

    def reading(self, cell: Cell) -> Reading:
        """How the cell's number is read.

        Raises:
            InputError: the experiment does not say.
        """
        try:
            return self.metrics[cell.metric]
        except KeyError:
            problem = f"{cell.metric} is missing, which {self.origin} has; allowed: {listed(self.metrics)}"
            raise self.error("metrics", problem) from None

    def reference(self, cell: Cell, speed_up: SpeedUp, table: Sequence[Cell]) -> tuple[int, int]:
        """Positions of the two cells of rounds that a speed-up is the ratio of: the reference's and the cell's own.

        Raises:
            InputError: the table has none, or several with different targets.
        """
        rounds: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for position, candidate in enumerate(table):
            if isinstance(self.metrics.get(candidate.metric), RoundsTo):
                place = tuple(sorted({**candidate.coordinates, "metric": ""}.items()))
                rounds.setdefault(place, []).append(position)

        def only(coordinates: Mapping[str, str]) -> int:
            match rounds.get(tuple(sorted(coordinates.items())), []):
                case [position]:
                    return position
                case []:
                    raise InputError(f"experiment={self.experiment}: no rounds for the speed-up at {coordinates}")
                case several:
                    targets = listed(table[position].metric for position in several)
                    raise InputError(
                        f"experiment={self.experiment}: {targets} at {coordinates}; a speed-up needs the rounds to "
                        "one target; allowed: one of them"
                    )

        own = {**cell.coordinates, "metric": ""}
        return only({**own, **speed_up.reference}), only(own)


def unit_of(reading: Reading) -> str:
    """The unit of a cell whose paper's number is not known."""
    if isinstance(reading, ValueAt):
        return "%" if all(map(wording.is_share, reading.keys)) else "number"
    return "rounds" if isinstance(reading, RoundsTo) else "x"


def listed(names: Iterable[str]) -> str:
    """Names in a message."""
    return ", ".join(names) or "none"


def command_arguments(experiment: str, scale: Scale | None) -> str:
    """The arguments of ``fedrun`` that start an experiment at a scale; None: at the default one."""
    arguments = f"experiment={experiment}" if scale in (None, "full") else f"experiment={experiment} scale={scale}"
    folder = config_dir_option()
    if folder is None or experiment not in files_in("experiment", [folder]):
        return arguments
    here = Path.cwd()
    named = folder.relative_to(here) if folder.is_relative_to(here) else folder
    return f"--config-dir {shlex.quote(str(named))} {arguments}"


def tables() -> list[str]:
    """The tables that can be compared, such as ``turbosvm/table2``, in the papers' order."""
    return sorted((name for name in options("experiment") if "/table" in name), key=by_number)


def by_number(name: str) -> list[str | int]:
    """A sort key for names, which puts table 9 before table 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def load(name: str) -> TableReading:
    """How a table is read.

    Raises:
        InputError: there is none of this name, or its description or the file of its paper's numbers is damaged.
    """
    if name not in (known := tables()):
        raise InputError(f"table {name}: no such table; allowed: {', '.join(known)}")
    return _load(name, config_dir_option())


@cache
def _load(name: str, folder: Path | None) -> TableReading:
    """The same for a table that exists; ``folder``: the folder of further options in which names are looked up."""
    table = {**experiment_sweep(name).sweeper.table, "experiment": name}
    reading = described(table, TableReading, f"{option_files('experiment', folder)[name]}: hydra.sweeper.table")
    check(reading)
    return reading


def check(reading: TableReading) -> None:
    """Reject a description that does not fit the table's cells.

    Raises:
        InputError: a meaning cannot be read; a coordinate, its value or a metric of a cell is missing; or a name is no
            coordinate of any cell.
    """
    from fedrun.config.composition_errors import composing

    for key, meaning in reading.coordinates.items():
        if isinstance(meaning, str) and not re.fullmatch(r"[^={}]+={}", meaning):
            allowed = "KEY={}, or a list of KEY=VALUE for each value"
            raise reading.error(f"coordinates.{key}", f"{meaning}; allowed: {allowed}")
        for value, overrides in () if isinstance(meaning, str) else meaning.items():
            try:
                with composing(overrides):
                    override_values(overrides)
            except InputError as error:
                raise reading.error(f"coordinates.{key}.{value}", str(error)) from None
    table = reading.cells()
    for cell in table:
        reading.reading(cell)
        if reading.reason(cell) is None:
            reading.conditions(cell, "full")
    known = dict.fromkeys(key for cell in table for key in cell.coordinates)
    parts: dict[str, Iterable[str]] = {
        "columns": reading.columns,
        "blocks": reading.blocks,
        "out_of_reach": chain.from_iterable(entry.where for entry in reading.out_of_reach),
        "unknown_parameters": chain.from_iterable(entry.where for entry in reading.unknown_parameters),
    }
    for part, names in parts.items():
        if unknown := next((name for name in names if name not in known), None):
            raise reading.error(part, f"{unknown} is no coordinate of the table's cells; allowed: {listed(known)}")


def described(content: Mapping[str, Any], kind: type[T], where: str) -> T:
    """The object that a part of a YAML file describes; ``where`` names the part in an error message.

    Raises:
        InputError: the description is damaged.
    """
    try:
        return TypeAdapter(kind).validate_json(json.dumps(content))  # JSON's arrays may become tuples
    except ValidationError as error:
        first = error.errors()[0]
        # of a way of reading pydantic also names the key by which it is known
        place = [part for depth, part in enumerate(first["loc"]) if depth != 2 or first["loc"][0] != "metrics"]
        problem = {"missing": "is missing", "unexpected_keyword_argument": "unknown key"}.get(
            first["type"], first["msg"]
        )
        if len(place) == 1 and first["type"] == "unexpected_keyword_argument":
            problem += f"; allowed: {listed(name for name in get_type_hints(kind) if name != 'experiment')}"
        raise InputError(f"{where}.{'.'.join(map(str, place))}: {problem}") from None
