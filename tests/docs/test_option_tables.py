"""The tables of options in docs/ are what their script writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedrun.config.options import option_files, options

from .option_tables import BEGIN, COSTS, END, TABLES, OptionTable, comment, cost_cells, marked


def rows(table: OptionTable) -> dict[str, list[str]]:
    """The cells of every row, by option."""
    written = table.page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert written.startswith(table.header)
    split = [line.strip("|").split("|") for line in written.removeprefix(table.header).strip().splitlines()]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells] for cells in split}


@pytest.mark.parametrize("group", TABLES)
def test_every_option_has_its_row(group: str) -> None:
    """``make option-tables`` writes them."""
    table = TABLES[group]
    found = rows(table)
    assert sorted(found) == options(group)
    for name, cells in found.items():
        text = table.text(name)
        assert cells[: len(text)] == text
        assert len(cells) == len(table.columns)


@pytest.mark.parametrize("name", ["scaffold", "moon", "fedproto", "pfedfda"])
def test_costs_are_measured(name: str) -> None:
    assert rows(TABLES["strategy"])[name][-len(COSTS) :] == cost_cells(name)


def test_a_table_replaces_what_its_page_had(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\n| old |\n{END}\n\nbehind\n")
    table = OptionTable("privacy", page, ("privacy", "is"), lambda name: [name, comment("privacy", name)])
    table.write()
    before, _, rest = page.read_text().partition(f"{BEGIN}\n")
    assert (before, rest.partition(END)[2]) == ("before\n\n", "\n\nbehind\n")
    assert rest.splitlines()[:2] == ["| privacy | is |", "| --- | --- |"]
    assert "| none | Uploads are averaged unchanged. |" in rest
    assert "old" not in rest


def test_paths_keys_and_commands_in_comments_are_code() -> None:
    assert marked("as <data_dir>/a/*.csv, test_1.mat.") == "as `<data_dir>/a/*.csv`, `test_1.mat`."
    assert (
        marked("with dataset=mnist; mnist_2nn's widths (x, y)") == "with `dataset=mnist`; `mnist_2nn`'s widths (x, y)"
    )
    assert marked("words (fedrun-data glove), e = mc^2") == "words (`fedrun-data glove`), e = mc^2"
    assert marked("timm (pip install 'fedrun[timm]')") == "timm (`pip install 'fedrun[timm]'`)"


@pytest.mark.parametrize("group", ["dataset", "partition", "model"])
def test_numbers_of_parameters_and_shapes_are_those_of_the_comments(group: str) -> None:
    """Where a comment states a number for the dataset of the table, the classes agree."""
    for name in option_files(group):
        text = comment(group, name)
        assert text.endswith(".") or "http" in text.rpartition(" ")[2], f"conf/{group}: {name}"
        if (stated := re.search(r": ([\d ]+) parameters .*?(\d+) classes", text)) is not None:
            size, _, dataset = rows(TABLES["model"])[name][-1].partition(" with ")
            classes = rows(TABLES["dataset"])[dataset.strip("`")][3]
            assert classes != stated[2] or size == stated[1], name
