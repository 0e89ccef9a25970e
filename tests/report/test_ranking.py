"""Ranks over seeds, worked by hand."""

from __future__ import annotations

import pytest

from fedrun.report.ranking import ranking
from fedrun.report.settings import settings

from ..helpers.run_folders import rows


def compared(folders, finals: dict[str, tuple[float, ...] | dict[int, float]], **data: str):
    for strategy, values in finals.items():
        server = {"strategy.server._target_": f"fedrun.strategies.{strategy}.{strategy}"}
        for seed, value in values.items() if isinstance(values, dict) else enumerate(values):
            own = data.get(strategy, "01234567")
            folders.write(seed, rows(0.1, value), strategy=strategy, changes=server, data=own)
    return settings(folders.found.runs)[0]


FINALS = {"fedavg": (0.5, 0.6, 0.7), "turbosvm": (0.51, 0.62, 0.73), "median": (0.5, 0.9, 0.1)}


def test_ranks_over_seeds(folders):
    """Seed 0: TurboSVM-FL 1, the others share 2.5; seed 1: median, TurboSVM-FL, FedAvg; seed 2: TurboSVM-FL, FedAvg,
    median. The differences of TurboSVM-FL from FedAvg are 1, 2 and 3 points, whose p is in test_significance. Those of
    the median are 0, 30 and -60: t = -0.378, and p = 1 - 0.378 / sqrt(0.378² + 2) with two degrees of freedom.
    """
    (table,) = ranking(compared(folders, FINALS))
    assert table.title == "Ranks by test accuracy"
    assert table.header == ("setting", "test accuracy", "mean rank", "difference from fedavg")
    assert table.rows == (
        ("turbosvm", "62.00 ± 8.98", "1.33", "+2.00 (p = 0.0742)"),
        ("median", "50.00 ± 32.66", "2.17", "-10.00 (p = 0.742)"),
        ("fedavg", "60.00 ± 8.16", "2.50", ""),
    )


def test_settings_without_every_seed_are_named(folders):
    (table,) = ranking(compared(folders, FINALS | {"krum": (0.1,)}))
    assert [row[0] for row in table.rows] == ["turbosvm", "median", "fedavg"]
    assert table.notes[1:] == ("Not ranked, without a result for every seed: krum.",)


def test_more_seeds_of_one_setting_do_not_prevent_a_ranking(folders):
    """FedAvg has two more seeds, which nobody else has: they count nowhere, its mean included."""
    (table,) = ranking(compared(folders, FINALS | {"fedavg": (0.5, 0.6, 0.7, 0.1, 0.1)}))
    assert [row[:3] for row in table.rows] == [
        ("turbosvm", "62.00 ± 8.98", "1.33"),
        ("median", "50.00 ± 32.66", "2.17"),
        ("fedavg", "60.00 ± 8.16", "2.50"),
    ]
    assert "Means over seeds 0, 1, 2. " in table.notes[0]
    assert table.notes[1:] == ("Seeds not used, without a result of every ranked setting: 3, 4.",)


def test_a_seed_that_several_settings_lack_is_not_used(folders):
    """Over seeds 0 and 1 there are 5 settings, hence 10 results; over seeds 0, 1 and 2 only 3, hence 9. Over 0 and 1,
    TurboSVM-FL has ranks 1 and 2, the median 2.5 and 1, FedAvg 2.5 and 3, Krum and FedProx both 4.5 and 4.5.
    """
    (table,) = ranking(compared(folders, FINALS | {"krum": (0.1, 0.1), "fedprox": (0.1, 0.1)}))
    assert {row[0]: row[2] for row in table.rows} == {
        "turbosvm": "1.50",
        "median": "1.75",
        "fedavg": "2.75",
        "krum": "4.50",
        "fedprox": "4.50",
    }
    assert "Means over seeds 0, 1. " in table.notes[0]
    assert table.notes[1:] == ("Seeds not used, without a result of every ranked setting: 2.",)


def test_settings_with_seeds_in_common_are_ranked_beside_those_with_others(folders):
    """FedAvg has two seeds in common with two settings, and two others with two more: the first two seeds count."""
    (table,) = ranking(
        compared(
            folders,
            {
                "fedavg": {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5},
                "turbosvm": {0: 0.6, 1: 0.6},
                "median": {0: 0.7, 1: 0.7},
                "krum": {2: 0.1, 3: 0.1},
                "fedprox": {2: 0.2, 3: 0.2},
            },
        )
    )
    assert [(row[0], row[2]) for row in table.rows] == [("median", "1.00"), ("turbosvm", "2.00"), ("fedavg", "3.00")]
    assert table.notes[1:] == (
        "Not ranked, without a result for every seed: fedprox, krum.",
        "Seeds not used, without a result of every ranked setting: 2, 3.",
    )


def test_settings_on_other_data_than_fedavg_are_named(folders):
    (table,) = ranking(compared(folders, FINALS, median="fedcba98"))
    assert table.notes[1:] == ("The data of these have another fingerprint than the baseline's: median.",)


def test_own_models_have_no_p_against_a_global_one(folders):
    tested = {"median": {"tested": "each client's own model on the client's own test samples"}}
    for strategy, values in FINALS.items():
        server = {"strategy.server._target_": f"fedrun.strategies.{strategy}.{strategy}"}
        for seed, value in enumerate(values):
            summary = {"decisions": tested.get(strategy, {"tested": "the global model on 40 pooled test samples"})}
            folders.write(seed, rows(0.1, value), strategy=strategy, changes=server, summary=summary)
    (table,) = ranking(settings(folders.found.runs)[0])
    assert [row[3] for row in table.rows] == ["+2.00 (p = 0.0742)", "-10.00 (p = -)", ""]
    assert table.notes[1].startswith("Not tested alike: ")


def test_settings_on_other_partitions_are_not_ranked_together(folders):
    """FedAvg has finished on one partition only: the others' runs on another one have no baseline yet."""
    for strategy, values in FINALS.items():
        server = {"strategy.server._target_": f"fedrun.strategies.{strategy}.{strategy}"}
        for beta in (0.1,) if strategy == "fedavg" else (0.1, 0.5):
            for seed, value in enumerate(values):
                changes = {**server, "partition.beta": beta}
                folders.write(seed, rows(0.1, value), strategy=strategy, changes=changes)
    (table,) = ranking(settings(folders.found.runs)[0])
    assert len(table.rows) == 3
    assert all("beta=0.5" not in row[0] for row in table.rows)


@pytest.mark.parametrize(
    "finals",
    [
        {"fedavg": (0.5, 0.6), "turbosvm": (0.6, 0.7)},  # two settings
        {"fedavg": (0.5,), "turbosvm": (0.6,), "median": (0.7,)},  # one seed
        {"krum": (0.5, 0.6), "turbosvm": (0.6, 0.7), "median": (0.7, 0.8)},  # no FedAvg
    ],
)
def test_too_little_to_rank(folders, finals):
    assert ranking(compared(folders, finals)) == []
