import pytest

from fedrun.report.papers.results import Section
from fedrun.report.papers.results_file import document, read
from fedrun.report.table import Table
from fedrun.system.errors import InputError


def section(name, *cells, missing=0):
    notes = (f"Not run yet: {missing} of 87 cells.",) if missing else ()
    tables = (Table(f"Of {name}, {cell}", ("row", "value"), (("a", cell),), notes=notes) for cell in cells)
    return Section(name, tuple(tables))


def headings(text):
    return [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ") and line != "## Overview"]


def test_sections_are_written_in_the_papers_order(tmp_path):
    """Of the papers' tables 10 comes after 9 and a smaller scale after the larger one; other experiments come last."""
    names = ["fedconcat/tune", "turbosvm/table10", "turbosvm/table9/small", "turbosvm/table9", "fedumf/tableA1/smoke"]
    text = document([section(name, "1") for name in names])
    path = tmp_path / "RESULTS.md"
    path.write_text(text)
    assert [name for name, _ in read(path)] == [
        "fedumf/tableA1/smoke",
        "turbosvm/table9",
        "turbosvm/table9/small",
        "turbosvm/table10",
        "fedconcat/tune",
    ]
    assert text.startswith("# Results\n\nThe papers' tables with our numbers next to theirs")


def test_newer_sections_take_the_place_of_the_kept_ones(tmp_path):
    path = tmp_path / "RESULTS.md"
    path.write_text(document([section("fedavg/table1", "1", "2"), section("fedumf/table2/small", "3")]))
    text = document([section("fedavg/table1", "4"), section("fedavg/table2", "5")], read(path))
    assert headings(text) == ["Of fedavg/table1, 4", "Of fedavg/table2, 5", "Of fedumf/table2/small, 3"]
    path.write_text(text)
    assert document([], read(path)) == text


def test_a_section_of_which_fewer_cells_were_run_replaces_nothing(tmp_path):
    path = tmp_path / "RESULTS.md"
    names = ("fedconcat/table5/small", "fedconcat/table9", "fedconcat/table10", "fedconcat/table14")
    earlier, later = (0, 85, 9, 5), (1, 86, 10, 5)
    path.write_text(document([section(name, "1", missing=count) for name, count in zip(names, earlier, strict=True)]))
    text = document([section(name, "2", missing=count) for name, count in zip(names, later, strict=True)], read(path))
    assert headings(text) == [f"Of {names[0]}, 1", f"Of {names[1]}, 1", f"Of {names[2]}, 1", f"Of {names[3]}, 2"]


def test_no_file_has_nothing_to_keep(tmp_path):
    assert read(tmp_path / "RESULTS.md") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# My notes\n\n<!-- to do -->\n", "no sections to keep; allowed: a file that fedrun-report --results has wr"),
        (b"\xff", "cannot be read"),
    ],
)
def test_another_file_is_not_written_over(tmp_path, content, message):
    path = tmp_path / "RESULTS.md"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: {message}"):
        read(path)
