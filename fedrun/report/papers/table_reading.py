"""How a paper's table is read from a sweep's runs: ``hydra.sweeper.table`` of ``experiment/PAPER/TABLE.yaml``.

The sweep defines the runs. The table defines which overrides each coordinate of a cell means; a cell is read from the
runs whose configuration has all these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from fedrun.config.config_class import config_class
from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import Scale
from fedrun.config.options import option_files
from fedrun.report.papers.own_cells import own_cells
from fedrun.report.papers.paper import Cell, cells, numbers_file
from fedrun.report.papers.readings import Reading, RoundsTo, SpeedUp, Where, unit_of
from fedrun.system.errors import InputError

Overrides: TypeAlias = tuple[str, ...]
"""Conditions on a run's configuration, written as on the command line, such as ``("dataset=femnist",)``."""


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
        further_runs: names of other experiments; their runs are used for cells and seeds of which this one has no run.
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
    further_runs: tuple[str, ...] = ()

    @property
    def file(self) -> Path:
        """The experiment's file."""
        return option_files("experiment")[self.experiment]

    def run_names(self, scale: Scale) -> list[str]:
        """The ``name`` of the runs from which the table is read at a scale, first that of its own sweep."""
        experiments = (self.experiment, *self.further_runs)
        return list(dict.fromkeys(experiment_sweep(name).run_name(scale) for name in experiments))

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


def listed(names: Iterable[str]) -> str:
    """Names in a message."""
    return ", ".join(names) or "none"
