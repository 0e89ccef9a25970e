"""The numbers the papers print: one CSV file per paper, one row per cell of a table.

The file is beside the folder of the paper's experiments: ``experiment/PAPER.csv`` for ``experiment/PAPER/TABLE.yaml``.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedrun.config.options import option_files
from fedrun.system.errors import InputError

COLUMNS = ("paper", "table", "dataset", "setting", "strategy", "metric", "value", "std", "unit")


@dataclass(frozen=True)
class Cell:
    """One cell of a paper's table.

    Attributes:
        paper: short name of the paper, such as ``turbosvm``.
        table: as the paper numbers it, such as ``T2``.
        dataset: may be empty.
        setting: the other coordinates of the cell, such as ``{"C": "8", "E": "1"}``.
        strategy: may be empty.
        metric: what was measured, such as ``accuracy`` or ``rounds_to_0.70``.
        printed: as printed; empty if the paper has a dash or the number is lost; ``>200`` if not reached by then.
        std: what follows the ±, None if nothing does.
        unit: the number's unit: ``%``, ``rounds``, ``x`` (times as fast), ``fraction``, ``number``, ...
    """

    paper: str
    table: str
    dataset: str
    setting: Mapping[str, str]
    strategy: str
    metric: str
    printed: str
    std: float | None
    unit: str

    @property
    def number(self) -> float | None:
        """The value; None if it is not a single number (a dash, lost, a bound such as ``>200``, a range)."""
        return _number(self.printed)

    @property
    def coordinates(self) -> dict[str, str]:
        """The cell's position in its table: dataset, strategy, metric and the setting's keys."""
        return {"dataset": self.dataset, "strategy": self.strategy, "metric": self.metric, **self.setting}

    def __str__(self) -> str:
        if not self.printed:
            return "-"
        return self.printed if self.std is None else f"{self.printed} ± {self.std:.{self.decimals}f}"

    @property
    def decimals(self) -> int:
        """Decimal places that are printed; without a number 2 for a fraction, 3 for any number, otherwise 1."""
        if self.number is None:
            return {"fraction": 2, "number": 3}.get(self.unit, 1)
        return len(self.printed.partition(".")[2])


def numbers_file(experiment: str) -> Path:
    """The file with the numbers of a table's paper, which may not exist.

    Args:
        experiment: the table's name, such as ``turbosvm/table2``.
    """
    file = option_files("experiment")[experiment]
    return file.parents[experiment.count("/")] / f"{experiment.partition('/')[0]}.csv"


def cells(path: Path, table: str) -> list[Cell]:
    """The cells of one of a paper's tables, in the file's order.

    Raises:
        InputError: there is no such table, or the file is damaged.
    """
    tables: dict[str, list[Cell]] = {}
    for cell in _cells_of(path, path.stat().st_mtime_ns):
        tables.setdefault(cell.table, []).append(cell)
    if table not in tables:
        raise InputError(f"{path}: table {table!r}: no such table; allowed: {', '.join(tables)}")
    return tables[table]


@cache
def _cells_of(path: Path, modified: int) -> tuple[Cell, ...]:
    """The cells of a file that was last changed at ``modified``."""
    return tuple(read(path))


def read(path: Path) -> list[Cell]:
    """The cells of a file.

    Raises:
        InputError: the file is not such a CSV file, or a row of it is damaged.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}); allowed: CSV in UTF-8") from None
    if tuple(header) != COLUMNS:
        wrong = next((f" ({name!r} is not one of them)" for name in header if name not in COLUMNS), "")
        raise InputError(f"{path}, line 1: columns {', '.join(header)}{wrong}; allowed: {', '.join(COLUMNS)}")
    cells: dict[tuple[object, ...], Cell] = {}
    units: dict[tuple[str, str], str] = {}
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        try:
            cell = _cell(row)
        except ValueError as error:
            raise InputError(f"{path}, line {line}: {error}") from None
        place = (cell.table, *sorted(cell.coordinates.items()))
        if place in cells:
            raise InputError(f"{path}, line {line}: the same cell is in an earlier line")
        if (unit := units.setdefault((cell.table, cell.metric), cell.unit)) != cell.unit:
            raise InputError(
                f"{path}, line {line}: unit {cell.unit!r}; expected {unit!r}, as earlier of {cell.metric} in the table"
            )
        cells[place] = cell
    return list(cells.values())


def _cell(row: list[str]) -> Cell:
    """The cell of a row; ValueError says what is wrong."""
    if len(row) != len(COLUMNS):
        raise ValueError(f"{len(row)} values; expected {len(COLUMNS)}")
    paper, table, dataset, setting, strategy, metric, printed, std, unit = row
    if not (paper and table and metric):
        raise ValueError("paper, table and metric must not be empty")
    pairs = [part.partition("=") for part in setting.split(";") if part]
    if wrong := next((key for key, equals, _ in pairs if not equals), None):
        raise ValueError(f"setting {wrong!r}; expected key=value;key=value")
    if std and ((spread := _number(std)) is None or spread < 0 or _number(printed) is None):
        raise ValueError(f"value {printed!r} ± {std!r}; expected two numbers, the second at least 0")
    return Cell(
        paper, table, dataset, {key: value for key, _, value in pairs}, strategy, metric, printed, _number(std), unit
    )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
