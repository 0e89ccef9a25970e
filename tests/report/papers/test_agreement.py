"""The overview of RESULTS.md, from sections written by hand."""

from __future__ import annotations

from decimal import Decimal

import pytest

from fedrun.report.papers.agreement import ComparedCell, compared_cells, overview, remarks, same_order

SECTION = """\
## FedConcat, table 1. Accuracy

Scale: small (fedrun experiment=fedconcat/table1 scale=small). Data: fmnist (01234567).

Fewer rounds than at scale full: 10 of 50.

| strategy  | two labels: paper | two labels: ours | two labels: difference | iid: ours |
| --------- | ----------------: | ---------------: | ---------------------: | --------: |
| fedavg    |        79.0 ± 4.7 |       82.6 ± 1.0 |                   +3.6 |      90.0 |
| fedprox   |        80.0 ± 0.5 |             77.0 |                   -3.0 |      90.0 |
| moon      |              80.0 |             90.0 |                  +10.0 |      90.0 |
| fedrs     |        80.0 ± 0.5 |       60.0 ± 0.7 |                  -20.0 |   not run |
| fedlc     |                 - |             60.0 |                      - |      90.0 |
| fedconcat |        84.4 ± 0.6 |             >200 |                      - |      90.0 |
| turbosvm  |        84.4 ± 0.6 |             83.0 |                      - |      90.0 |

A note with a | in it.

## FedConcat, table 1. Another block

| strategy |  paper |  ours | difference |
| -------- | -----: | ----: | ---------: |
| fedavg   |   -0.5 | -0.25 |      +0.25 |
"""


def comparison(paper: str, ours: str, deviation: str, strategy: str = "", *place: str) -> ComparedCell:
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


def test_cells_are_compared_where_a_difference_is_printed() -> None:
    """The larger deviation counts. Dashes are cells without the paper's number, without ours, or of a stand-in."""
    two_labels = ("1", "two labels: difference")
    assert list(compared_cells(SECTION)) == [
        comparison("79.0", "82.6", "4.7", "fedavg", *two_labels),
        comparison("80.0", "77.0", "0.5", "fedprox", *two_labels),
        comparison("80.0", "90.0", "0.0", "moon", *two_labels),
        comparison("80.0", "60.0", "0.7", "fedrs", *two_labels),
        comparison("-0.5", "-0.25", "0.0", "fedavg", "2", "difference"),
    ]


def test_the_order_of_a_papers_method_and_a_baseline_in_the_same_column() -> None:
    text = """\
| strategy | metric    | paper |        ours | difference |
| -------- | --------- | ----: | ----------: | ---------: |
| fedavg   | rounds to |    15 |          16 |         +1 |
| fedprox  | rounds to |    12 |          14 |         +2 |
| scaffold | rounds to | 14 ± 4 |       16 |       +2 |
| fedumf   | rounds to |    10 |  15.0 ± 1.0 |       +5.0 |
| fedavg   | accuracy  |    80 |          70 |        -10 |
| fedumf   | accuracy  |    80 |          75 |         -5 |
| fedumf_x | accuracy  |    85 |          70 |        -15 |
| fedumf   | loss      |     1 |           2 |         +1 |
"""
    # Rounds: fewer than FedAvg in both; fewer than FedProx in the paper only; SCAFFOLD's 14 is within its deviation
    # of 10. Accuracy: fedumf and FedAvg are equal in the paper; fedumf_x is above FedAvg in the paper and equal here.
    # The loss has no baseline.
    assert same_order(compared_cells(text), "fedumf") == [True, False, False]
    assert same_order(compared_cells(text), "maxfl") == []


def test_a_row_for_each_papers_table_and_none_for_other_experiments() -> None:
    table = overview({"fedconcat/table1/small": SECTION, "fedconcat/table2": "", "turbosvm/shakespeare": SECTION})
    assert table is not None
    assert table.header == (
        "table",
        "scale",
        "what is known",
        "compared",
        "agree",
        "near",
        "above",
        "below",
        "same order",
    )
    assert table.rows == (
        ("fedconcat/table1", "small", "Rounds: 10 of 50.", "5", "1", "1", "2", "1", "-"),
        ("fedconcat/table2", "full", "", "0", "0", "0", "0", "0", "-"),
    )
    assert overview({"turbosvm/shakespeare": SECTION}) is None


def test_what_is_known_of_a_difference() -> None:
    """Stand-ins and shortened runs from the section, and the first sentence of the table's note."""
    text = (
        "Fewer rounds than at scale full: 4 of 50.\n\n"
        "In place of dataset mnist, ours ran with dataset=digits, so no differences are given."
    )
    assert remarks("fedumf/table2", text) == (
        "Rounds: 4 of 50. Other data or another model than the paper's. "
        "The paper's clients are milder than two shards of 300 images: its row fits FedDC's Dirichlet(0.6)."
    )
