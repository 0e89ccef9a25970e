"""The table of docs/strategies.md is what its script writes."""

from __future__ import annotations

import pytest

from fedrun.config.options import options

from . import strategies_table
from .strategies_table import BEGIN, END, HEADER, PAGE, cost_cells, costs, text_cells

MEASURED = len(strategies_table.COSTS)


def rows() -> dict[str, list[str]]:
    """The cells of every row, by strategy."""
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert table.startswith(HEADER)
    split = [line.strip("|").split("|") for line in table.removeprefix(HEADER).strip().splitlines()]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells] for cells in split}


def test_every_strategy_has_its_row() -> None:
    """``make strategies-page`` writes them."""
    found = rows()
    assert sorted(found) == options("strategy")
    for name, cells in found.items():
        assert cells[:-MEASURED] == text_cells(name)


@pytest.mark.parametrize("name", ["scaffold", "moon", "fedproto", "pfedfda"])
def test_costs_are_measured(name: str) -> None:
    assert rows()[name][-MEASURED:] == cost_cells(name, costs("fedavg"))
