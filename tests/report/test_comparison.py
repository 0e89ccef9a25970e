import pytest

from fedrun.report import comparison
from fedrun.report.baselines import Baselines
from fedrun.report.quantities import Quantity
from fedrun.report.settings import settings
from fedrun.report.significance import Comparison
from fedrun.system.errors import InputError

from ..helpers.run_folders import rows


@pytest.fixture
def two(folders):
    """FedAvg ends at 50, 60 and 70 %, TurboSVM-FL at 51, 62 and 73 %."""
    other = {"strategy.server._target_": "fedrun.strategies.turbosvm.TurboSVM"}
    for seed, (value, better) in enumerate([(0.50, 0.51), (0.60, 0.62), (0.70, 0.73)]):
        folders.write(seed, rows(0.1, 0.3, value))
        folders.write(seed, rows(0.1, 0.8, better), strategy="turbosvm", changes=other)
    folders.write(9, rows(0.1), complete=False)
    found, _ = settings(folders.found.runs)
    return found


def test_the_tables_of_a_report(two):
    tables = {
        table.title: table
        for table in comparison.report(two, ["test/accuracy"], [0.3], Baselines.named(two, "fedavg"), "t")
    }
    assert list(tables) == [
        "Settings",
        "After the last round",
        "Best round",
        "Rounds to a target",
        "Difference from fedavg",
        "Costs",
        "Configuration keys that differ",
    ]
    assert tables["Settings"].rows == (
        ("fedavg", "digits", "fedavg", "0, 1, 2, (9)"),
        ("turbosvm", "digits", "turbosvm", "0, 1, 2"),
    )
    # 60 ± sqrt(200 / 3) and 62 ± sqrt(242 / 3); 62 = (51 + 62 + 73) / 3.
    assert tables["After the last round"].rows == (("fedavg", "60.00 ± 8.16"), ("turbosvm", "62.00 ± 8.98"))
    assert tables["Best round"].rows[1] == ("turbosvm", "80.00 ± 0.00")
    assert tables["Rounds to a target"].header == ("setting", "to 30 %", "to 70 %")
    assert tables["Rounds to a target"].rows == (
        ("fedavg", "1.0 ± 0.0", ">2"),
        ("turbosvm", "1.0 ± 0.0", "1.0 ± 0.0"),
    )
    # Differences 1, 2, 3 (see test_significance); the two reached 70 % together with seed 2 only, in rounds 1 and 2.
    assert tables["Difference from fedavg"].rows == (("turbosvm", "+2.00 (p = 0.0742)", "+0 (p = -)", "-"),)
    assert tables["Costs"].rows[0] == ("fedavg", "20", "40", "200", "1.0 ± 0.0")
    assert tables["Configuration keys that differ"].rows == (("fedavg", "fedavg"), ("turbosvm", "turbosvm"))


def test_what_adaptive_runs_do_not_tell_is_said(folders):
    """One looked for 70 % and was tested fully in rounds 2 and 3; the other for 50 %."""
    more = {"test/accuracy_estimate": 0.6, "test/evaluated": 256.0}
    adaptive = {"evaluation.adaptive": True, "local.lr": 0.2}
    folders.write(0, rows(0.1, 0.5, 0.8, 0.7), changes={"targets": [0.5]})
    folders.write(0, [rows(None, **more)[0], *rows(None, None, 0.8, 0.7)[2:]], changes=adaptive)
    found, _ = settings(folders.found.runs)
    metrics = comparison.selected(found, [])
    assert metrics == ["test/accuracy", "test/loss"]
    best, targets = comparison.report(found, metrics)[2:4]
    assert best.rows[1][1] == "80.00"
    assert best.notes[0].endswith("With evaluation.adaptive=true, of the rounds that were tested fully.")
    assert [row[1:] for row in targets.rows] == [("1.0", "2.0"), ("-", "2.0")]
    assert targets.notes[0].endswith(" -: with evaluation.adaptive=true, this was not a target.")


def test_wilcoxons_limit_is_reported(two):
    reported = comparison.reported_quantities(two, ["test/accuracy"], [])
    table = comparison.difference_table(two, Baselines.named(two, "fedavg"), reported, "wilcoxon")
    assert table.rows[0][1] == "+2.00 (p = 0.25)"
    assert table.notes[-1] == "With 3 seeds that differ this test cannot give a p below 0.25."


def test_unfinished_runs_alone_leave_an_overview(folders):
    folders.write(0, rows(0.1), complete=False)
    found, _ = settings(folders.found.runs)
    assert [table.title for table in comparison.report(found, ["test/accuracy"])] == ["Settings"]


def test_a_setting_without_complete_runs_is_no_row(folders):
    folders.write(0, rows(0.1), complete=False)
    folders.write(0, rows(0.1, 0.5), changes={"local.lr": 0.2})
    found, _ = settings(folders.found.runs)
    final = comparison.report(found, ["test/accuracy"])[1]
    assert final.rows == (("local.lr=0.2", "50.00"),)


def test_a_run_that_ended_early_says_no_more_than_its_rounds(folders):
    """It reached its target of 70 % in round 1 and ended there; of 90 % it knows that one round was not enough."""
    folders.write(0, rows(0.1, 0.8))
    folders.write(0, rows(0.1, 0.2, 0.8), changes={"local.lr": 0.2})
    found, _ = settings(folders.found.runs)
    final, _, targets = comparison.report(found, ["test/accuracy"], [0.9])[1:4]
    assert [row[1:] for row in targets.rows] == [("1.0", ">1"), ("2.0", ">2")]
    assert final.notes[0].endswith(" The runs ended in rounds 1 to 2.")


def test_a_baseline_on_other_data_is_not_compared(folders):
    for dataset, data in (("digits", "0123"), ("mnist", "4567")):
        for seed in (0, 1):
            changes = {"dataset": {"_target_": dataset}}
            folders.write(seed, rows(0.1, 0.5 + seed / 10), dataset=dataset, data=data, changes=changes)
    for seed in (0, 1):
        changes = {"local.lr": 0.2, "dataset": {"_target_": "digits"}}
        folders.write(seed, rows(0.1, 0.6), changes=changes, data="89ab")
    found, _ = settings(folders.found.runs)
    baseline = next(one for one in found if one.dataset == "digits" and one.leaves["local.lr"] == 0.1)
    reported = comparison.reported_quantities(found, ["test/accuracy"], [])
    table = comparison.difference_table(found, Baselines(baseline.name, (baseline,)), reported, "t")
    assert [row[0] for row in table.rows] == ["digits local.lr=0.2"]
    assert "Not compared, because no baseline has the same dataset: mnist." in table.notes
    assert "The data of these have another fingerprint than the baseline's: digits local.lr=0.2." in table.notes


def test_the_seeds_of_a_difference_are_named_where_they_are_not_those_of_the_means(folders):
    """Over the common seeds 2 and 3 the difference is 10 points; the means over own seeds differ by more."""
    finals = {"fedavg": {0: 0.1, 2: 0.5, 3: 0.6}, "median": {2: 0.6, 3: 0.7}, "krum": {5: 0.9}, "fedprox": {3: 0.7}}
    for strategy, values in finals.items():
        server = {"strategy.server._target_": f"fedrun.strategies.{strategy}.{strategy}"}
        for seed, final in values.items():
            folders.write(seed, rows(0.1, final), strategy=strategy, changes=server)
    found, _ = settings(folders.found.runs)
    table = difference(found, "test/accuracy")
    assert {row[0]: row[1].partition(" ")[0] for row in table.rows} == {
        "median": "+10.00",
        "krum": "-",
        "fedprox": "+10.00",
    }
    assert "Compared over seeds 2, 3 only, while means are over each setting's own: median." in table.notes
    assert "Compared over seed 3 only, while means are over each setting's own: fedprox." in table.notes
    assert "Compared over no seed only, while means are over each setting's own: krum." in table.notes


@pytest.fixture
def own_models(folders):
    """Of two seeds: FedAvg's global model, and own models of Ditto, with their accuracies over clients."""
    for strategy, tested, reported in (
        ("fedavg", "the global model on 40 pooled test samples", "clients/accuracy_weighted"),
        ("fedprox", "the global model on 40 pooled test samples", "clients/accuracy_weighted"),
        ("ditto", "each client's own model on the client's own test samples", "clients/accuracy_weighted"),
        ("fedproto", "each client's own model on the client's own test samples", "clients/accuracy_mean"),
    ):
        for seed in (0, 1):
            more = {"clients/accuracy_weighted": 0.6 + 0.1 * seed, "clients/accuracy_mean": 0.8}
            own = {f"{key}": value + (0.1 * (seed + 1) if strategy != "fedavg" else 0) for key, value in more.items()}
            changes = {"strategy.server._target_": f"fedrun.strategies.{strategy}.{strategy}"}
            summary = {"decisions": {"tested": tested}, "reported": reported}
            content = rows(0.1, 0.5 + 0.1 * seed if strategy == "fedavg" else 0.6 + 0.2 * seed, **own)
            folders.write(seed, content, strategy=strategy, changes=changes, summary=summary)
    found, _ = settings(folders.found.runs)
    return found


def difference(found, metric):
    reported = comparison.reported_quantities(found, [metric], [])
    return comparison.difference_table(found, Baselines.named(found, "fedavg"), reported, "t")


def test_settings_that_are_not_tested_alike_have_no_p(own_models):
    """The differences are 10 and 20 points: mean 15, and t = 15 / 5 = 3 with one degree of freedom, whose two-sided p
    is 1 - 2 atan(3) / pi = 0.205.
    """
    pooled = difference(own_models, "test/accuracy")
    assert {row[0]: row[1] for row in pooled.rows} == {
        "ditto": "+15.00 (p = -)",
        "fedprox": "+15.00 (p = 0.205)",
        "fedproto": "+15.00 (p = -)",
    }
    assert "No p where some common seed did not reach the target in both, nor where the two are not tested alike." in (
        pooled.notes
    )
    assert pooled.notes[-1].startswith("Not tested alike: ")
    of_clients = difference(own_models, "clients/accuracy_weighted")
    assert {row[1] for row in of_clients.rows} == {"+15.00 (p = 0.205)"}


def test_the_accuracy_that_each_setting_reports(own_models):
    """60 and 70 % of FedAvg, 10 and 20 points more of Ditto; 90 and 100 % of FedProto."""
    assert comparison.selected(own_models, ["reported"]) == ["reported"]
    assert "reported" not in comparison.selected(own_models, [])
    final = comparison.report(own_models, ["reported"])[1]
    assert final.header == ("setting", "reported accuracy")
    assert dict(final.rows) == {
        "ditto": "80.00 ± 10.00",
        "fedavg": "65.00 ± 5.00",
        "fedprox": "80.00 ± 10.00",
        "fedproto": "95.00 ± 5.00",
    }
    told = (
        "Reported: clients accuracy by samples of ditto, fedavg, fedprox. Reported: clients mean accuracy of fedproto."
    )
    assert final.notes[0].endswith(told)
    own = difference(own_models, "reported")
    assert {row[0]: row[1] for row in own.rows} == {
        "ditto": "+15.00 (p = 0.205)",
        "fedprox": "+15.00 (p = 0.205)",
        "fedproto": "+30.00 (p = -)",
    }


def test_what_no_run_has_is_refused(two):
    with pytest.raises(InputError, match=r"^own/f1: no run has this metric; allowed: test/accuracy, test/loss$"):
        comparison.selected(two, ["own/f1"])


def test_of_many_metrics_the_likely_one_is_suggested(folders):
    folders.write(0, rows(0.1, **{f"server/own_metric_of_group_{number}": 0.5 for number in range(10)}))
    (setting,), _ = settings(folders.found.runs)
    with pytest.raises(InputError) as refused:
        comparison.selected([setting], ["test/acuracy"])
    assert str(refused.value) == (
        "test/acuracy: no run has this metric; did you mean test/accuracy? fedrun-report RUNS --format csv shows all"
    )


def test_a_large_difference_has_no_exponent():
    """Of rounds, or of a loss that diverged."""
    result = Comparison((0, 1), 2, 12345.5, 0.25, "")
    assert comparison.difference_cell(Quantity("rounds to", "0.9"), result, 2) == "+12,345.5 (p = 0.25)"
