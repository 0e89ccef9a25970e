import pytest

from fedrun.report.papers.results import Section
from fedrun.report.papers.results_file import document, not_replaced, read
from fedrun.report.table import Table, markdown
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
    text = document([section("fedavg/table1", "4", "6"), section("fedavg/table2", "5")], read(path))
    assert headings(text) == [
        "Of fedavg/table1, 4",
        "Of fedavg/table1, 6",
        "Of fedavg/table2, 5",
        "Of fedumf/table2/small, 3",
    ]
    path.write_text(text)
    assert document([], read(path)) == text


def test_a_section_of_which_fewer_cells_were_run_replaces_nothing(tmp_path):
    path = tmp_path / "RESULTS.md"
    names = ("fedconcat/table5/small", "fedconcat/table9", "fedconcat/table10", "fedconcat/table14")
    earlier, later = (0, 85, 9, 5), (1, 86, 10, 5)
    path.write_text(document([section(name, "1", missing=count) for name, count in zip(names, earlier, strict=True)]))
    text = document([section(name, "2", missing=count) for name, count in zip(names, later, strict=True)], read(path))
    assert headings(text) == [f"Of {names[0]}, 1", f"Of {names[1]}, 1", f"Of {names[2]}, 1", f"Of {names[3]}, 2"]


def experiment(*strategies, seeds="0, 1, 2", notes=(), more=()):
    """A section with a row per strategy."""
    above = (f"Data: digits (01234567). Seeds: {seeds}. Code: commit abc.", *notes)
    header = ("setting", "test accuracy")
    tables = (Table("experiment=a/b: after the last round", header, tuple((one, "1") for one in strategies), above),)
    return Section("a/b", tables + tuple(Table(title, header, (("x", "1"),)) for title in more))


FULL = experiment("fedavg", "fedprox")


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (FULL, ""),
        (experiment("fedavg", "fedcm", "fedprox"), ""),
        (experiment("fedavg", "fedprox", seeds="0, 1, 2, 3", notes=("Only seeds 0: fedprox.",)), ""),
        (experiment("fedavg"), "fewer rows (1 instead of 2)"),
        (experiment("fedavg", more=("Ranks by test accuracy",)), "fewer rows (1 instead of 2)"),
        (experiment("fedavg", more=("experiment=a/b: rounds to a target",)), ""),
        (experiment("fedavg", "fedprox", seeds="7"), "fewer seeds (1 instead of 3)"),
        (experiment("fedavg", "fedprox", seeds="10, 11"), "fewer seeds (2 instead of 3)"),
        (experiment("fedavg", "fedprox", notes=("Only seeds 0: fedprox.",)), "more cells or settings without all se"),
        (
            experiment("fedavg", "fedprox", notes=("Not run yet with all of the seeds 0, 1, 2: 1 of 2 cells.",)),
            "more cells or settings without all seeds",
        ),
    ],
)
def test_a_section_of_fewer_rows_or_seeds_replaces_nothing(tmp_path, new, reason):
    """The older section has two rows over three seeds."""
    path = tmp_path / "RESULTS.md"
    path.write_text(document([FULL]))
    lines = not_replaced([new], read(path))
    assert document([new], read(path)) == document([FULL if reason else new])
    assert bool(lines) == bool(reason)
    assert reason in lines.get("a/b", "")


def test_settings_that_lack_more_seeds_than_before_replace_nothing():
    """One of three seeds instead of two; not the other way round."""
    one, two = (experiment("fedavg", "fedprox", notes=(f"Only seeds {some}: fedprox.",)) for some in ("0", "0, 1"))
    kept = [[("a/b", "\n\n".join(map(markdown, section.tables)))] for section in (one, two)]
    assert (list(not_replaced([one], kept[1])), list(not_replaced([two], kept[0]))) == (["a/b"], [])


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
