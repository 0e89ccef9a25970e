"""The papers' tables that experiments describe: their names, commands and checked descriptions."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import Scale
from fedrun.config.options import config_dir_option, files_in, option_files, options
from fedrun.config.suggestions import no_such_option
from fedrun.report.papers.job_values import Values, override_values
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.table_reading import Overrides, TableReading, listed
from fedrun.system.errors import InputError

T = TypeVar("T")


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


def load_table(name: str) -> TableReading:
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
    for key, meaning in reading.coordinates.items():
        if isinstance(meaning, str) and not re.fullmatch(r"[^={}]+={}", meaning):
            allowed = "KEY={}, or a list of KEY=VALUE for each value"
            raise reading.error(f"coordinates.{key}", f"{meaning}; allowed: {allowed}")
        for value, overrides in () if isinstance(meaning, str) else meaning.items():
            required_values(reading, f"coordinates.{key}.{value}", overrides)
    table = reading.cells()
    for cell in table:
        reading.reading(cell)
        if reading.reason(cell) is None:
            reading.conditions(cell, "full")
    if unknown := next((name for name in reading.further_runs if name not in options("experiment")), None):
        raise reading.error("further_runs", no_such_option("experiment", unknown, options("experiment")))
    if reading.experiment in reading.further_runs:
        raise reading.error("further_runs", f"{reading.experiment} is the table's own; allowed: other experiments")
    parts = {
        "columns": reading.columns,
        "blocks": reading.blocks,
        "out_of_reach": chain.from_iterable(entry.where for entry in reading.out_of_reach),
        "unknown_parameters": chain.from_iterable(entry.where for entry in reading.unknown_parameters),
    }
    require_coordinates(table, parts, f"{reading.file}: hydra.sweeper.table")


def required_values(reading: TableReading, part: str, overrides: Overrides) -> Values:
    """The values in overrides that a part of a table's description requires.

    Raises:
        InputError: one cannot be read.
    """
    from fedrun.config.composition_errors import composing

    try:
        with composing(overrides):
            return override_values(overrides)
    except InputError as error:
        raise reading.error(part, str(error)) from None


def require_coordinates(cells: Iterable[Cell], parts: Mapping[str, Iterable[str]], where: str) -> None:
    """Check the names of coordinates in parts of a YAML file; ``where`` says in messages where these parts are.

    Raises:
        InputError: a name is no coordinate of any cell.
    """
    known = dict.fromkeys(key for cell in cells for key in cell.coordinates)
    for part, names in parts.items():
        if unknown := next((name for name in names if name not in known), None):
            raise InputError(
                f"{where}.{part}: {unknown} is not a coordinate of the table's cells; allowed: {listed(known)}"
            )


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
