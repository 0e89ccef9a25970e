import io

import pytest
from rich.console import Console

from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.report.settings import settings
from fedrun.report.sweep_table import show, sweep_table, tabulate

from ..helpers.run_folders import rows


def server(strategy):
    return {"strategy.server._target_": f"fedrun.strategies.{strategy}.{strategy}"}


def write(folders, strategy, seed, *accuracies, changes=None, **more):
    content = [
        row | {"test/f1": row["test/accuracy"] - 0.1, "test/mcc": 0.5}
        for row in rows(*accuracies, **more.pop("metrics", {}))
    ]
    changes = server(strategy) | (changes or {})
    return folders.write(seed, content, strategy=strategy, changes=changes, **more)


def table(folders):
    return tabulate(*settings(folders.found.runs))


@pytest.fixture
def two(folders):
    """Accuracies 0.60 and 0.62: mean 61, std (ddof 0) 1. Rounds to 50 %: 1 and 3, mean 2, std 1."""
    changes = {"targets": [0.5, 0.7], "rounds": 3}
    write(folders, "fedavg", 0, 0.1, 0.5, 0.7, 0.60, changes=changes)
    write(folders, "fedavg", 1, 0.1, 0.2, 0.4, 0.62, changes=changes)
    for seed in (0, 1):
        write(folders, "turbosvm", seed, 0.1, 0.5 + seed / 10, 0.7, 0.80, changes=changes)
    return settings(folders.found.runs)[0]


def test_two_strategies_at_80_columns(two):
    console = Console(width=80, file=io.StringIO())
    console.print(sweep_table(two))
    assert [line.rstrip() for line in console.file.getvalue().splitlines()] == [
        "          runs      accuracy            F1           MCC    to 50 %    to 70 %",
        "──────────────────────────────────────────────────────────────────────────────",
        "fedavg       2  61.00 ± 1.00  51.00 ± 1.00  50.00 ± 0.00  2.0 ± 1.0         >3",
        "turbosvm     2  80.00 ± 0.00  70.00 ± 0.00  50.00 ± 0.00  1.0 ± 0.0  2.0 ± 0.0",
        "",
        "Test metrics after the last round, in percent; mean ± std over seeds (ddof 0).",
        "to X: the first round that reaches X; >N: some seed did not reach X in N rounds.",
    ]


def test_a_narrow_terminal_has_several_tables(two):
    """The columns need 8, 4, 12, 12, 12, 9 and 9 characters, with 2 before each: 28, 36 and 30 of the 40."""
    console = Console(width=40, file=io.StringIO())
    console.print(sweep_table(two))
    assert [line.rstrip() for line in console.file.getvalue().splitlines()][:14] == [
        "          runs      accuracy",
        "────────────────────────────",
        "fedavg       2  61.00 ± 1.00",
        "turbosvm     2  80.00 ± 0.00",
        "",
        "                    F1           MCC",
        "────────────────────────────────────",
        "fedavg    51.00 ± 1.00  50.00 ± 0.00",
        "turbosvm  70.00 ± 0.00  50.00 ± 0.00",
        "",
        "            to 50 %    to 70 %",
        "──────────────────────────────",
        "fedavg    2.0 ± 1.0         >3",
        "turbosvm  1.0 ± 0.0  2.0 ± 0.0",
    ]


def test_accuracies_over_clients_have_a_column(folders, two):
    assert "reported" not in tabulate(two).header
    own = {"clients/accuracy_mean": 0.9, "clients/accuracy_weighted": 0.7}
    for strategy, metric in (("fedproto", "clients/accuracy_mean"), ("fedrep", "clients/accuracy_weighted")):
        write(folders, strategy, 0, 0.1, 0.5, metrics=own, summary={"reported": metric})
    with_own = table(folders)
    column = with_own.header.index("reported")
    assert {row[0]: row[column] for row in with_own.rows} == {
        **{"fedavg": "-", "turbosvm": "-"},
        **{"fedproto": "90.00", "fedrep": "70.00"},
    }
    assert with_own.notes[2:] == (
        "Reported: clients mean accuracy of fedproto.",
        "Reported: clients accuracy by samples of fedrep.",
    )


def test_validation_metrics_have_the_same_columns_and_no_targets(folders):
    """A search looks at no test sample."""
    for lr, accuracy in ((0.1, 0.4), (0.2, 0.6)):
        searched = [{"round": 0, "validation/accuracy": 0.1}, {"round": 1, "validation/accuracy": accuracy}]
        folders.write(0, searched, changes={"validation.share": 0.1, "local.lr": lr})
    searched = table(folders)
    assert searched.header == ("", "runs", "accuracy")
    assert [row[2] for row in searched.rows] == ["40.00", "60.00"]
    assert searched.notes == ("Validation metrics after the last round, in percent; mean ± std over seeds (ddof 0).",)


@pytest.mark.parametrize("terminal", [True, False])
def test_in_a_file_nothing_is_folded(folders, terminal):
    long = 60 * "1"
    for hidden in ("1", long):
        write(folders, "fedavg", 0, 0.1, 0.5, changes={"model.hidden": hidden})
    console = Console(width=80, file=io.StringIO(), force_terminal=terminal, color_system=None)
    show(sweep_table(settings(folders.found.runs)[0]), console)
    written = console.file.getvalue().splitlines()
    assert any(long in line for line in written) != terminal


def test_brackets_in_a_name_are_not_markup(folders):
    for size in (1, 2):
        write(folders, "fedavg", 0, 0.1, 0.5, changes={"model.layers": [size]})
    console = Console(width=80, file=io.StringIO())
    console.print(sweep_table(settings(folders.found.runs)[0]))
    assert "model.layers=[1]" in console.file.getvalue()


def test_a_setting_whose_seed_has_no_value(folders):
    write(folders, "fedavg", 0, 0.1, 0.5)
    folders.write(1, rows(0.1, None), changes=server("fedavg"))
    assert table(folders).rows == (("digits fedavg", "2", "-", "-", "-", ">1"),)


def test_seeds_on_other_data_are_left_out_and_settings_on_other_data_named(folders):
    """A file has changed after the first seed's jobs."""
    first = write(folders, "fedavg", 0, 0.1, 0.5)
    write(folders, "turbosvm", 0, 0.1, 0.6)
    changed = write(folders, "fedavg", 1, 0.1, 0.9, data="fedcba98")
    write(folders, "median", 0, 0.1, 0.6, data="fedcba98")
    mixed = table(folders)
    assert [row[:3] for row in mixed.rows] == [
        ("fedavg", "1", "50.00"),
        ("median", "1", "60.00"),
        ("turbosvm", "1", "60.00"),
    ]
    assert mixed.notes[2:] == (
        "median: on other data than fedavg.",
        f"{changed}: the same setting as {first}, but on other data; left out",
    )


def test_a_target_that_only_some_settings_have(folders):
    """The curves of the others show it, too."""
    write(folders, "fedavg", 0, 0.1, 0.5, 0.6, changes={"targets": [0.5]})
    write(folders, "turbosvm", 0, 0.1, 0.2, 0.8, changes={"targets": [0.7]})
    assert [row[-2:] for row in table(folders).rows] == [("1.0", ">2"), ("2.0", "2.0")]


def test_virtual_seconds_to_a_target(folders):
    """A seed that reaches 70 % in round 1, after 10 s, and one that reaches it in round 2, after 40 s."""
    for seed, accuracies in enumerate(((0.1, 0.8, 0.8), (0.1, 0.5, 0.8))):
        times = (0.0, 10.0, 30.0) if seed == 0 else (0.0, 20.0, 40.0)
        content = [row | {VIRTUAL_SECONDS: time} for row, time in zip(rows(*accuracies), times, strict=True)]
        folders.write(seed, content)
    timed = table(folders)
    assert timed.header == ("", "runs", "accuracy", "to 70 %", "seconds to 70 %")
    assert timed.rows == (("digits fedavg", "2", "80.00 ± 0.00", "1.5 ± 0.5", "25.0 ± 15.0"),)
    assert timed.notes[2] == "seconds to X: virtual seconds up to that round."


def test_settings_that_are_not_tested_alike(folders):
    """Two of one dataset; different test sets of two datasets are no difference."""

    def tested(strategy, by, dataset="femnist"):
        changes = {"dataset._target_": dataset}
        write(folders, strategy, 0, 0.1, 0.5, changes=changes, dataset=dataset, summary={"decisions": {"tested": by}})

    pooled, own = "the global model on 355 pooled test samples", "each client's own model on its own test samples"
    tested("fedavg", pooled)
    tested("turbosvm", pooled)
    tested("fedavg", "on others", dataset="digits")
    assert not any("tested alike" in note for note in table(folders).notes)
    tested("ditto", own)
    assert table(folders).notes[-1] == (
        f"Not tested alike: digits fedavg: on others; femnist ditto: {own}; femnist fedavg, femnist turbosvm: {pooled}."
    )
