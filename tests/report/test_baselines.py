"""Which baseline each setting is compared with, and what that gives; differences worked out by hand."""

from __future__ import annotations

import pytest

from fedrun.report import comparison
from fedrun.report.baselines import Baselines
from fedrun.report.ranking import ranking
from fedrun.report.settings import settings
from fedrun.system.errors import InputError

from ..helpers.run_folders import rows


@pytest.fixture
def by_rate(folders):
    """Three strategies at two rates, final accuracies of seeds 0 and 1; TurboSVM-FL also at a third rate."""
    finals = {
        ("fedavg", 0.1): (0.50, 0.60),
        ("turbosvm", 0.1): (0.51, 0.62),
        ("median", 0.1): (0.40, 0.40),
        ("fedavg", 0.2): (0.70, 0.80),
        ("turbosvm", 0.2): (0.60, 0.72),
        ("median", 0.2): (0.90, 0.90),
        ("turbosvm", 0.4): (0.10, 0.20),
    }
    for (strategy, rate), values in finals.items():
        server = {"strategy.server._target_": f"fedrun.strategies.{strategy}.{strategy}"}
        for seed, value in enumerate(values):
            folders.write(seed, rows(0.1, value), strategy=strategy, changes=server | {"local.lr": rate})
    return settings(folders.found.runs)[0]


def test_a_setting_is_compared_with_the_baseline_of_its_condition(by_rate):
    baselines = Baselines.named(by_rate, "fedavg")
    assert (baselines.name, baselines.required) == ("fedavg", "dataset and local.lr")
    reported = comparison.reported_quantities(by_rate, ["test/accuracy"], [])
    table = comparison.difference_table(by_rate, baselines, reported, "t")
    # (1 + 2) / 2, (-10 - 20) / 2, (-10 - 8) / 2 and (20 + 10) / 2 points
    assert {row[0]: row[1].partition(" ")[0] for row in table.rows} == {
        "turbosvm local.lr=0.1": "+1.50",
        "median local.lr=0.1": "-15.00",
        "turbosvm local.lr=0.2": "-9.00",
        "median local.lr=0.2": "+15.00",
    }
    assert table.title == "Difference from fedavg"
    assert table.notes[1] == "Each setting is compared with fedavg of the same dataset and local.lr."
    assert (
        table.notes[-1] == "Not compared, because no baseline has the same dataset and local.lr: turbosvm local.lr=0.4."
    )


def test_a_strategy_with_one_setting_is_compared_under_its_own_condition_only(folders):
    """FedAvg ran with 10 clients: runs of another strategy with 20 hold other samples, and are not compared."""
    for strategy, clients, final in (("fedavg", 10, 0.5), ("median", 10, 0.6), ("median", 20, 0.9)):
        server = {"strategy.server._target_": f"fedrun.strategies.{strategy}.{strategy}"}
        folders.write(0, rows(0.1, final), strategy=strategy, changes=server | {"partition.clients": clients})
    compared = settings(folders.found.runs)[0]
    reported = comparison.reported_quantities(compared, ["test/accuracy"], [])
    baselines = Baselines.named(compared, "fedavg")
    table = comparison.difference_table(compared, baselines, reported, "t")
    assert [row[0] for row in table.rows] == ["median partition.clients=10"]
    assert table.notes[-1].startswith("Not compared, because no baseline has the same ")


def test_a_baseline_that_every_setting_is_one_of_is_rejected(by_rate):
    by_rate = [setting for setting in by_rate if setting.strategy == "fedavg"]
    with pytest.raises(InputError, match=r"^baseline fedavg: no setting is left to compare; allowed: fedavg local.lr="):
        Baselines.named(by_rate, "fedavg")
    with pytest.raises(InputError, match="no setting is left to compare; allowed: with other settings$"):
        Baselines.named(by_rate[:1], "fedavg")


def test_each_condition_has_its_own_ranks(by_rate):
    first, second = ranking(by_rate)
    assert first.title == "Ranks by test accuracy, local.lr=0.1"
    assert [row[0] for row in first.rows] == ["turbosvm", "fedavg", "median"]
    assert first.header[-1] == "difference from fedavg"
    assert second.title == "Ranks by test accuracy, local.lr=0.2"
    assert [(row[0], row[2]) for row in second.rows] == [("median", "1.00"), ("fedavg", "2.00"), ("turbosvm", "3.00")]
    assert second.rows[0][3].startswith("+15.00")


def test_a_baseline_that_no_setting_is_or_that_is_ambiguous(folders):
    weighting = "strategy.server.weighting"
    for value in ("samples", "uniform"):
        folders.write(0, rows(0.1), changes={weighting: value})
    found, _ = settings(folders.found.runs)
    with pytest.raises(InputError, match=r"^baseline krum: no such setting; allowed: .*weighting=samples, "):
        Baselines.named(found, "krum")
    with pytest.raises(InputError, match=r"^baseline fedavg: 2 settings have this strategy; allowed: .*=samples, "):
        Baselines.named(found, "fedavg")
    assert Baselines.named(found, found[1].name).settings == (found[1],)


def test_a_value_that_one_setting_has_is_enough(folders):
    """The third setting differs from the first in two keys, so that all are named by both."""
    labels = {"partition._target_": "fedrun.data.partitions.labels.Labels"}
    for rounds_made, changes in ((60, {}), (60, labels), (30, labels)):
        folders.write(0, rows(0.1), changes=changes | {"rounds": rounds_made})
    found, _ = settings(folders.found.runs)
    names = ["rounds=30 partition=labels", "rounds=60 partition=iid", "rounds=60 partition=labels"]
    assert [setting.name for setting in found] == names
    assert Baselines.named(found, "partition=iid").name == "rounds=60 partition=iid"
    assert Baselines.named(found, "rounds=30").name == "rounds=30 partition=labels"
    with pytest.raises(InputError, match=r"^baseline rounds=60: 2 settings have this value; allowed: rounds=30 par"):
        Baselines.named(found, "rounds=60")
    with pytest.raises(InputError, match=r"^baseline rounds=6: no such setting; "):
        Baselines.named(found, "rounds=6")
