import io

import pytest
from rich.console import Console

from fedrun.report.sweep_table import labels, mean_and_std, show, sweep_table, tabulate


def summary(strategy, seed, accuracy, hits, overrides=(), config_hash="0f3a", dataset="femnist"):
    return {
        "status": "complete",
        "title": f"{strategy} · {dataset} · seed {seed}",
        "group": f"runs/{dataset}/{strategy}/{config_hash}",
        "seed": seed,
        "dataset": dataset,
        "strategy": strategy,
        "overrides": [f"seed={seed}", f"strategy={strategy}", *overrides],
        "final": {"test/accuracy": accuracy, "test/f1": accuracy - 0.1, "test/mcc": 0.5},
        "rounds_to": hits,
        "cap": 200,
    }


# Accuracies 0.60 and 0.62: mean 61, std (ddof 0) 1. Rounds 10 and 14: mean 12, std 2.
RUNS = [
    summary("fedavg", 0, 0.60, {"0.50": 10, "0.70": 150}),
    summary("turbosvm", 0, 0.80, {"0.50": 5, "0.70": 40}),
    summary("fedavg", 1, 0.62, {"0.50": 14, "0.70": None}),
    summary("turbosvm", 1, 0.80, {"0.50": 5, "0.70": 42}),
]


def test_two_strategies_at_80_columns():
    console = Console(width=80, file=io.StringIO())
    console.print(sweep_table(RUNS))
    assert [line.rstrip() for line in console.file.getvalue().splitlines()] == [
        "          runs      accuracy            F1           MCC     to 50 %     to 70 %",
        "────────────────────────────────────────────────────────────────────────────────",
        "fedavg       2  61.00 ± 1.00  51.00 ± 1.00  50.00 ± 0.00  12.0 ± 2.0        >200",
        "turbosvm     2  80.00 ± 0.00  70.00 ± 0.00  50.00 ± 0.00   5.0 ± 0.0  41.0 ± 1.0",
        "",
        "Test metrics after the last round, in percent; mean ± std over seeds (ddof 0).",
        "to: the first round that reaches it; >N: not by every seed in N rounds.",
    ]


def test_accuracies_over_clients_have_a_column():
    own = {"clients/accuracy_mean": 0.9, "clients/accuracy_weighted": 0.7, "test/accuracy": 0.5}
    runs = [
        {**summary("fedproto", 0, 0.5, {}), "final": own, "reported": "clients/accuracy_mean"},
        {**summary("fedrep", 0, 0.5, {}), "final": own, "reported": "clients/accuracy_weighted"},
    ]
    table = tabulate(runs)
    column = table.header.index("reported")
    assert [row[column] for row in table.rows] == ["90.00", "70.00"]
    assert table.notes[1:] == (
        "Reported: clients mean accuracy of fedproto.",
        "Reported: clients accuracy by samples of fedrep.",
    )
    assert "reported" not in tabulate(RUNS).header


@pytest.mark.parametrize("terminal", [True, False])
def test_in_a_file_nothing_is_folded(terminal):
    long = "model.hidden=" + 60 * "1"
    runs = [summary("fedavg", 0, 0.5, {}), summary("fedavg", 0, 0.5, {}, [long], "1f2e")]
    console = Console(width=80, file=io.StringIO(), force_terminal=terminal, color_system=None)
    show(sweep_table(runs), console)
    written = console.file.getvalue().splitlines()
    assert any(long in line for line in written) != terminal


def label(*runs):
    return list(labels({run["group"]: run for run in runs}).values())


def test_settings_are_named_by_what_differs():
    fedavg, turbosvm = summary("fedavg", 0, 0.5, {}), summary("turbosvm", 0, 0.5, {})
    digits = summary("fedavg", 0, 0.5, {}, dataset="digits")
    assert label(fedavg, turbosvm) == ["fedavg", "turbosvm"]
    assert label(fedavg, digits) == ["femnist", "digits"]
    assert label(fedavg) == ["femnist fedavg"]


def test_settings_are_named_by_their_overrides_but_not_by_those_they_share():
    one = summary("fedprox", 0, 0.5, {}, ["rounds=5", "strategy.client.mu=[1,2]"], "1111")
    two = summary("fedprox", 0, 0.5, {}, ["rounds=5", "+x=1"], "2222")
    plain = summary("fedprox", 0, 0.5, {}, ["rounds=5"], "3333")
    assert label(one, two, plain) == ["strategy.client.mu=[1,2]", "+x=1", "default"]


def test_settings_that_no_override_tells_apart_are_named_by_their_hash():
    one, two = (summary("fedavg", 0, 0.5, {}, config_hash=name) for name in ("1111", "2222"))
    assert label(one, two) == ["default 1111", "default 2222"]


def test_copies_of_a_setting_under_two_names_are_named_by_their_groups():
    one, two = ({**summary("fedavg", 0, 0.5, {}), "group": f"{name}/femnist/fedavg/1111"} for name in ("a", "b"))
    assert label(one, two) == ["a/femnist/fedavg/1111", "b/femnist/fedavg/1111"]


def test_brackets_in_a_label_are_not_markup():
    runs = [summary("fedavg", 0, 0.5, {}, [f"model.layers=[{n}]"], str(n)) for n in (1, 2)]
    console = Console(width=80, file=io.StringIO())
    console.print(sweep_table(runs))
    assert "model.layers=[1]" in console.file.getvalue()


def test_cells():
    assert mean_and_std("accuracy", [0.5]) == "50.00"
    assert mean_and_std("accuracy", [0.5, None]) == "-"
    assert mean_and_std("accuracy", [0.70, 0.71, 0.75]) == "72.00 ± 2.16"  # sqrt((4 + 1 + 9) / 3) = 2.1602


def test_a_target_that_only_some_settings_have():
    runs = [summary("a", 0, 0.5, {"0.70": 3}), summary("b", 0, 0.5, {"0.50": 4, "0.70": None})]
    assert [row[-2:] for row in tabulate(runs).rows] == [("-", "3.0"), ("4.0", ">200")]


def test_settings_that_are_not_tested_alike():
    """Two of one dataset; different test sets of two datasets are no difference."""

    def tested(strategy, by, **more):
        return {**summary(strategy, 0, 0.5, {}, **more), "decisions": {"tested": by}}

    pooled, own = "the global model on 355 pooled test samples", "each client's own model on its own test samples"
    alike = [tested("fedavg", pooled), tested("turbosvm", pooled), tested("fedavg", "on others", dataset="digits")]
    assert not any("tested alike" in note for note in tabulate(alike).notes)
    assert tabulate([*alike[:2], tested("ditto", own)]).notes[-1] == (
        f"Not tested alike: fedavg, turbosvm: {pooled}; ditto: {own}."
    )
