"""The printed form of a paper's table: which cells have rows and columns, and what names these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from fedrun.report.papers.measurement import NOT_RUN, Measurement
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.table_reading import TableReading
from fedrun.report.table import Table
from fedrun.runs.display import wording

OUT_OF_REACH = "out of reach"
LEFT_OUT = "left out"
OURS = "ours"
COLUMNS = ("paper", OURS, "difference")
"""What is printed for each combination of column coordinates."""


def difference(cell: Cell, ours: Measurement | None) -> str:
    """Our number minus the paper's; ``-`` if one of them is missing, or ours is of a stand-in."""
    if ours is None or ours.number is None or cell.number is None or ours.of_stand_in:
        return wording.ABSENT
    return f"{ours.number - cell.number:+z.{max(cell.decimals, 1)}f}"


def coordinates(cell: Cell, keys: Iterable[str]) -> tuple[str, ...]:
    """A cell's values of some coordinates."""
    return tuple(cell.coordinates.get(key, "") for key in keys)


def shared(cells: Sequence[Cell], table: Sequence[Cell]) -> dict[str, str]:
    """The coordinates that all printed cells of a block share, and other cells of the table do not: the block's rows
    and columns do not show them.
    """
    return {
        key: value
        for key, value in cells[0].coordinates.items()
        if all(cell.coordinates.get(key) == value for cell in cells)
        and any(cell.coordinates.get(key, value) != value for cell in table)
    }


def printed_blocks(
    reading: TableReading, table: Sequence[Cell], measured: Mapping[int, Measurement], whole: bool
) -> list[Table]:
    """A printed table for each of the table's blocks that has a run.

    Args:
        reading: how the table is read.
        table: all cells.
        measured: our numbers.
        whole: whether rows without a run are printed, if one of their cells can be run.
    """
    shown = [position for position in range(len(table)) if whole or position in measured]
    run = {position for position in shown if position in measured and measured[position].text != NOT_RUN}
    printed = []
    for block in dict.fromkeys(coordinates(table[position], reading.blocks) for position in shown if position in run):
        cells = {one: table[one] for one in shown if coordinates(table[one], reading.blocks) == block}
        cells = with_runs(cells, reading, run, set(measured) if whole else run)
        named = dict(zip(reading.blocks, block, strict=True))
        named |= shared(list(cells.values()), [table[one] for one in shown])
        part = ", ".join(f"{key} {value}" for key, value in named.items())
        printed.append(layout(reading.title, part, cells, reading, measured))
    return printed


@dataclass(frozen=True)
class Grid:
    """Where a block's cells are printed.

    Attributes:
        down: coordinates that name the rows.
        across: coordinates that name the columns.
        places: each cell's position by its row's and its column's values of these coordinates.
    """

    down: list[str]
    across: list[str]
    places: dict[tuple[tuple[str, ...], tuple[str, ...]], int]

    @classmethod
    def of(cls, cells: Mapping[int, Cell], reading: TableReading) -> Grid:
        """The grid of some cells by their positions; only coordinates in which they differ name rows and columns."""
        names = list(dict.fromkeys(key for cell in cells.values() for key in cell.coordinates))
        values = {key: {cell.coordinates.get(key) for cell in cells.values()} for key in names}
        vary = [key for key in names if len(values[key] - {None}) > 1]
        if len({coordinates(cell, vary) for cell in cells.values()}) < len(cells):
            # Some cells differ from others only in lacking a coordinate.
            vary = [key for key in names if len(values[key]) > 1]
        across = [key for key in reading.columns if key in vary]
        down = [key for key in vary if key not in across and key not in reading.blocks] or ["strategy"]
        places = {(coordinates(cell, down), coordinates(cell, across)): position for position, cell in cells.items()}
        return cls(down, across, places)


def with_runs(cells: Mapping[int, Cell], reading: TableReading, run: Set[int], rows: Set[int]) -> dict[int, Cell]:
    """The cells of a block in columns with a run, and in rows with one of the cells ``rows`` in these columns."""
    places = Grid.of(cells, reading).places
    heads = {head for (_, head), position in places.items() if position in run}
    lines = {line for (line, head), position in places.items() if head in heads and position in rows}
    return {position: cells[position] for (line, head), position in places.items() if head in heads and line in lines}


def layout(
    title: str, part: str, cells: Mapping[int, Cell], reading: TableReading, measured: Mapping[int, Measurement]
) -> Table:
    """One printed table: for each combination of column coordinates the paper's number, ours and the difference; only
    ours if the paper has none.

    Args:
        title: the paper's table.
        part: the coordinates that the cells share.
        cells: the cells by their positions.
        reading: how the table is read.
        measured: our numbers.
    """
    grid = Grid.of(cells, reading)
    heads = list(dict.fromkeys(head for _, head in grid.places))
    lines = list(dict.fromkeys(line for line, _ in grid.places))
    numeric = {key for number, key in enumerate(grid.across) if any(is_number(head[number]) for head in heads)}

    def named(head: tuple[str, ...]) -> str:
        named_values = zip(grid.across, head, strict=True)
        return " ".join(f"{key}={value}" if key in numeric else value for key, value in named_values if value)

    def texts(position: int | None) -> dict[str, str]:
        if position is None:
            return dict.fromkeys(COLUMNS, "")
        cell, ours = cells[position], measured.get(position)
        absent = LEFT_OUT if reading.reason(cell) is None else OUT_OF_REACH
        text = absent if ours is None else ours.text
        return dict(zip(COLUMNS, (str(cell), text, difference(cell, ours)), strict=True))

    printed = {head for (_, head), position in grid.places.items() if cells[position].printed}
    columns = [(head, column) for head in heads for column in COLUMNS if head in printed or column == OURS]
    header = (*grid.down, *(": ".join(filter(None, (named(head), column))) for head, column in columns))
    rows = tuple((*line, *(texts(grid.places.get((line, head)))[column] for head, column in columns)) for line in lines)
    return Table(title, header, rows, labels=len(grid.down), part=part)


def is_number(value: str) -> bool:
    """Whether a coordinate's value says nothing without the coordinate's name: 0.1, 10 %, inf, true, null."""
    try:
        float(value.removesuffix("%"))
    except ValueError:
        return value in ("true", "false", "null")
    return True
