"""The overview at the beginning of RESULTS.md: how many of our numbers agree with each paper's table, and in how many
comparisons the paper's method does better than a baseline, or worse, in both.

It is computed from the printed sections, so that it also covers sections that are kept from an earlier report.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from fedrun.config.grids import SCALES
from fedrun.config.options import first_sentence
from fedrun.report.papers.paper_table import PARTS
from fedrun.report.papers.table_reading import load, tables
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

NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?")
"""A printed number and its standard deviation."""


@dataclass(frozen=True)
class ComparedCell:
    """A cell for which the paper and our runs have a number.

    Attributes:
        paper: the paper's number.
        ours: the mean over our seeds.
        deviation: the larger of the two standard deviations; 0 if neither is known.
        strategy: the strategy that the number belongs to; empty if the table has no column of strategies.
        place: number of the printed table, other labels of the row, heading of the column.
    """

    paper: Decimal
    ours: Decimal
    deviation: Decimal
    strategy: str = ""
    place: tuple[str, ...] = ()

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


def overview(sections: Mapping[str, str]) -> Table | None:
    """One row per paper's table; None if no section is one.

    Args:
        sections: the Markdown of each section by its name, in the order of the rows.
    """
    rows = []
    for name, text in sections.items():
        if (table := table_of(name)) is None:
            continue
        scale = name.removeprefix(table).removeprefix("/") or SCALES[0]
        cells = list(compared_cells(text))
        verdicts = [cell.verdict for cell in cells]
        counts = [str(verdicts.count(verdict)) for verdict in VERDICTS]
        orders = same_order(cells, table.partition("/")[0])
        order = f"{sum(orders)} of {len(orders)}" if orders else wording.ABSENT
        rows.append((table, scale, remarks(table, text), str(len(verdicts)), *counts, order))
    if not rows:
        return None
    header = ("table", "scale", "what is known", "compared", *VERDICTS, "same order")
    return Table("Overview", header, tuple(rows), above=(RULE,), labels=3)


def same_order(cells: Iterable[ComparedCell], paper: str) -> list[bool]:
    """Whether the greater number is the same one's in the paper and in ours, for each pair of a paper's method and a
    baseline in the same place. Pairs whose numbers in the paper differ by no more than a standard deviation are left
    out.

    Args:
        cells: a section's cells.
        paper: such as ``fedumf``, which is part of the names of the paper's own methods.
    """
    places: dict[tuple[str, ...], list[ComparedCell]] = {}
    for cell in cells:
        places.setdefault(cell.place, []).append(cell)
    pairs = [
        (own, other)
        for place in places.values()
        for own, other in itertools.product(place, place)
        if paper in own.strategy and paper not in other.strategy
    ]
    return [
        (own.paper - other.paper) * (own.ours - other.ours) > 0
        for own, other in pairs
        if abs(own.paper - other.paper) > max(own.deviation, other.deviation)
    ]


def table_of(section: str) -> str | None:
    """The paper's table that a section shows; None if it shows another experiment."""
    return next((table for table in tables() if section == table or section.startswith(f"{table}/")), None)


def remarks(table: str, text: str) -> str:
    """What makes a section's runs differ from the paper's, and the first sentence of the table's own note on it."""
    lines = text.splitlines()
    shorter = [line.partition(": ")[2] for line in lines if line.startswith("Fewer rounds than at scale full: ")]
    known = [f"Rounds: {rounds}" for rounds in shorter]
    if any("so no differences" in line for line in lines):
        known.append("Other data or another model than the paper's.")
    if note := load(table).notes.get(DIFFERS):
        known.append(first_sentence(note))
    return " ".join(known)


def compared_cells(text: str) -> Iterator[ComparedCell]:
    """The cells of a section's tables that are compared: those for which the section prints a difference."""
    header: list[str] = []
    number = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            header, number = cells, number + 1
            continue
        labels = dict(itertools.takewhile(lambda label: not label[0].endswith(PARTS), zip(header, cells, strict=True)))
        strategy = labels.pop("strategy", "")
        for place, column in enumerate(header):
            if column.endswith(PARTS[-1]) and cells[place] != wording.ABSENT:
                paper, ours = (NUMBER.fullmatch(cell) for cell in cells[place - 2 : place])
                if paper and ours:  # the line below the header has no numbers
                    yield ComparedCell(
                        Decimal(paper[1]),
                        Decimal(ours[1]),
                        max(Decimal(paper[2] or 0), Decimal(ours[2] or 0)),
                        strategy,
                        (str(number), *labels.values(), column),
                    )
