"""The overview of RESULTS.md, from cells and measurements written by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from fedrun.report.papers.agreement import ComparedCell, compared_cell, overview, remarks, same_order
from fedrun.report.papers.described_tables import load_table
from fedrun.report.papers.measurement import Measurement
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.paper_table import PaperTable


def cell(strategy: str, printed: str, std: float | None = None, **coordinates: str) -> Cell:
    return Cell("fedconcat", "T1", "fmnist", coordinates, strategy, "accuracy", printed, std, "%")


def paper_table(name: str, *pairs: tuple[Cell, Measurement], shorter: str = "") -> PaperTable:
    cells = [cell for cell, _ in pairs]
    return PaperTable(load_table(name), "small", cells, dict(enumerate(ours for _, ours in pairs)), shorter, ())


def comparison(paper: str, ours: str, deviation: str, strategy: str = "", **place: str) -> ComparedCell:
    return ComparedCell(Decimal(paper), Decimal(ours), Decimal(deviation), strategy, place)


@pytest.mark.parametrize(
    ("paper", "ours", "deviation", "verdict"),
    [
        ("79.0", "83.7", "4.7", "agree"),
        ("80.0", "77.0", "0.5", "near"),  # 3 of 80 is less than a twentieth
        ("80.0", "76.0", "0.0", "near"),  # exactly a twentieth
        ("80.0", "90.0", "0.0", "above"),
        ("80.0", "60.0", "0.5", "below"),
        ("-0.5", "-0.25", "0.0", "above"),
        ("0.0", "0.0", "0.0", "agree"),
    ],
)
def test_verdicts(paper: str, ours: str, deviation: str, verdict: str) -> None:
    assert comparison(paper, ours, deviation).verdict == verdict


TABLE = paper_table(
    "fedconcat/table1",
    (cell("fedavg", "79.0", 4.7), Measurement("82.6 ± 1.0", 82.6, 1.0)),
    (cell("fedprox", "80.0", 0.5), Measurement("77.0", 77.0)),
    (cell("moon", "80.0"), Measurement("90.0", 90.0)),
    (cell("fedrs", "80.0", 0.5), Measurement("60.0 ± 0.7", 60.0, 0.7)),
    (cell("fedlc", ""), Measurement("60.0", 60.0)),
    (cell("fedconcat", "84.4", 0.6), Measurement(">200", None)),
    (cell("fedconcat_id", "84.4", 0.6), Measurement("83.0", 83.0, of_stand_in=True)),
    shorter="10 of 50",
)


def test_cells_with_two_numbers_on_the_papers_data_are_compared() -> None:
    """The larger deviation counts."""
    assert [(one.strategy, one.deviation) for one in (compared_cell(*pair) for pair in TABLE.compared)] == [
        ("fedavg", Decimal("4.7")),
        ("fedprox", Decimal("0.5")),
        ("moon", Decimal("0.0")),
        ("fedrs", Decimal("0.7")),
    ]


def test_numbers_are_compared_as_printed() -> None:
    """83.72 - 79.0 is more than 4.7, but 83.7 and 79.0 are printed. Rounds of the paper have no decimals, ours have."""
    accuracy = compared_cell(cell("fedavg", "79.0", 4.7, C="2"), Measurement("83.7 ± 1.0", 83.72, 1.04))
    place = {"dataset": "fmnist", "metric": "accuracy", "C": "2"}
    assert accuracy == comparison("79.0", "83.7", "4.7", "fedavg", **place)
    rounds = compared_cell(cell("fedavg", "16"), Measurement("16.3 ± 0.5", 16 + 1 / 3, 0.47))
    assert (rounds.paper, rounds.ours, rounds.deviation) == (Decimal("16.0"), Decimal("16.3"), Decimal("0.5"))
    share = compared_cell(cell("fedavg", "0.834"), Measurement("0.8366 ± 0.0021", 0.8366, 0.0021))
    assert (share.paper, share.ours, share.deviation) == (Decimal("0.834"), Decimal("0.837"), Decimal("0.002"))


def test_the_order_of_small_numbers() -> None:
    """0.2 apart in the paper and 0.1 in ours. Either deviation may be as large as the paper's difference."""
    method = comparison("0.8", "0.7", "0.1", "fedconcat")
    assert same_order([method, comparison("0.6", "0.6", "0.1", "fedavg")], "fedconcat") == [True]
    assert same_order([method, comparison("0.6", "0.6", "0.2", "fedavg")], "fedconcat") == []
    unsure = replace(method, deviation=Decimal("0.2"))
    assert same_order([unsure, comparison("0.6", "0.6", "0.1", "fedavg")], "fedconcat") == []


def test_the_order_of_a_papers_method_and_a_baseline_in_the_same_place() -> None:
    """FedUmf's own parameter, which a baseline lacks, does not make another place."""
    cells = [
        comparison("15", "16", "0", "fedavg", metric="rounds to"),
        comparison("12", "14", "0", "fedprox", metric="rounds to"),
        comparison("14", "16", "4", "scaffold", metric="rounds to"),
        comparison("10", "15", "1", "fedumf", metric="rounds to", alpha="1"),
        comparison("80", "70", "0", "fedavg", metric="accuracy"),
        comparison("80", "75", "0", "fedumf", metric="accuracy"),
        comparison("85", "70", "0", "fedumf_x", metric="accuracy"),
        comparison("1", "2", "0", "fedumf", metric="loss"),
    ]
    # Rounds: fewer than FedAvg in both; fewer than FedProx in the paper only; SCAFFOLD's 14 is within its deviation
    # of 10. Accuracy: fedumf and FedAvg are equal in the paper; fedumf_x is above FedAvg in the paper and equal here.
    # The loss has no baseline.
    assert same_order(cells, "fedumf") == [True, False, False]
    assert same_order(cells, "maxfl") == []


def test_a_row_for_each_papers_table() -> None:
    own = (cell("fedconcat", "90.0"), Measurement("91.0", 91.0))
    other = paper_table("fedconcat/table2", (cell("fedavg", "80.0"), Measurement("75.0", 75.0)), own)
    table = overview([replace(TABLE, measured={**TABLE.measured, 6: Measurement("83.0", 83.0)}), other])
    verdicts = ("agree", "near", "above", "below")
    assert table.header == ("table", "scale", "compared", *verdicts, "same order", "what is known")
    # FedConcat-ID's 83.0, 84.4 in the paper, is above FedAvg's 82.6, FedProx's and FedRS's, and below MOON's 90.0.
    assert table.rows == (
        ("fedconcat/table1", "small", "5", "1", "2", "1", "1", "3 of 4", "Rounds: 10 of 50."),
        ("fedconcat/table2", "small", "2", "0", "1", "0", "1", "1 of 1", ""),
    )


def test_what_is_known_of_a_difference() -> None:
    """Shortened runs, stand-ins, and the first sentence of the table's note."""
    stand_in = (cell("fedavg", "80.0"), Measurement("83.0", 83.0, of_stand_in=True))
    assert remarks(paper_table("fedumf/table2", stand_in, shorter="4 of 50")) == (
        "Rounds: 4 of 50. Other data or another model than the paper's. "
        "The paper's clients are milder than two shards of 300 images: its row fits FedDC's Dirichlet(0.6)."
    )
