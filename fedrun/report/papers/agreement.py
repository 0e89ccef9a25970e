"""The overview at the beginning of RESULTS.md: how many of our numbers agree with each paper's table, and in how many
comparisons the paper's method does better than a baseline, or worse, in both.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from fedrun.config.options import first_sentence
from fedrun.report.papers.measurement import Measurement
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.paper_table import PaperTable
from fedrun.report.table import Table
from fedrun.runs.display import wording

NEAR = Decimal("0.05")
"""Largest difference, relative to the paper's number, of a number that is near without agreeing."""

RULE = (
    "The table counts the cells for which the paper and our runs on the paper's data and model have a number. A number "
    "agrees if it differs from the paper's by at most the larger standard deviation, if one is known. Other numbers "
    f"within {NEAR:.0%} of the paper's are near, and the rest are above or below. Same order: of the pairs of a "
    "paper's method and a baseline in the same column, those in which the same one has the greater number in both. "
    "Pairs whose numbers in the paper differ by no more than a standard deviation, the paper's or ours, are left out."
)

DIFFERS = "differs"
"""The name of the note on why a table's numbers differ from the paper's, as far as known."""


@dataclass(frozen=True)
class ComparedCell:
    """A cell for which the paper and our runs have a number. Numbers are rounded as in print.

    Attributes:
        paper: the paper's number.
        ours: the mean over our seeds.
        deviation: the larger of the two standard deviations; 0 if neither is known.
        strategy: the strategy that the number belongs to; may be empty.
        place: the cell's other coordinates. A baseline lacks those of a method's own parameters.
    """

    paper: Decimal
    ours: Decimal
    deviation: Decimal
    strategy: str
    place: Mapping[str, str]

    @property
    def verdict(self) -> str:
        """``agree``, ``near``, ``above`` or ``below``."""
        difference = self.ours - self.paper
        if abs(difference) <= self.deviation:
            return "agree"
        if abs(difference) <= NEAR * abs(self.paper):
            return "near"
        return "above" if difference > 0 else "below"


VERDICTS = ("agree", "near", "above", "below")


def overview(papers: Sequence[PaperTable]) -> Table:
    """One row per paper's table, in the given order."""
    rows = []
    for table in papers:
        cells = [compared_cell(cell, ours) for cell, ours in table.compared]
        verdicts = [cell.verdict for cell in cells]
        counts = [str(verdicts.count(verdict)) for verdict in VERDICTS]
        name = table.reading.experiment
        orders = same_order(cells, name.partition("/")[0])
        order = f"{sum(orders)} of {len(orders)}" if orders else wording.ABSENT
        rows.append((name, table.scale, str(len(verdicts)), *counts, order, remarks(table)))
    header = ("table", "scale", "compared", *VERDICTS, "same order", "what is known")
    return Table("Overview", header, tuple(rows), above=(RULE,), labels=2, remarks=True)


def compared_cell(cell: Cell, ours: Measurement) -> ComparedCell:
    """A cell with both numbers."""

    def rounded(number: float | None) -> Decimal:
        return Decimal(f"{number or 0.0:.{max(cell.decimals, 1)}f}")

    place = {key: value for key, value in cell.coordinates.items() if key != "strategy"}
    deviation = max(rounded(cell.std), rounded(ours.std))
    return ComparedCell(rounded(cell.number), rounded(ours.number), deviation, cell.strategy, place)


def same_order(cells: Sequence[ComparedCell], paper: str) -> list[bool]:
    """Whether the greater number is the same one's in the paper and in ours, for each pair of a paper's method and a
    baseline in the same place. Pairs whose numbers in the paper differ by no more than a standard deviation are left
    out.

    Args:
        cells: a table's cells.
        paper: such as ``fedumf``, which is part of the names of the paper's own methods.
    """
    own = [cell for cell in cells if paper in cell.strategy]
    baselines = [cell for cell in cells if paper not in cell.strategy]
    return [
        (cell.paper - baseline.paper) * (cell.ours - baseline.ours) > 0
        for cell, baseline in itertools.product(own, baselines)
        if all(baseline.place.get(key, value) == value for key, value in cell.place.items())
        if abs(cell.paper - baseline.paper) > max(cell.deviation, baseline.deviation)
    ]


def remarks(table: PaperTable) -> str:
    """What makes the runs differ from the paper's, and the first sentence of the table's own note on it."""
    known = [f"Rounds: {table.shorter}."] if table.shorter else []
    if any(ours.of_stand_in for ours in table.measured.values()):
        known.append("Other data or another model than the paper's.")
    if note := table.reading.notes.get(DIFFERS):
        known.append(first_sentence(note))
    return " ".join(known)
