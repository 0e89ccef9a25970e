import math

import pytest

from fedrun.data.targets import Target
from fedrun.runs.display import wording


def test_shares_are_percent_with_two_decimals():
    assert wording.percent(0.712345) == "71.23 %"
    assert wording.percent(-0.012) == "-1.20 %"
    assert wording.percent(1) == "100.00 %"
    assert wording.percent(math.nan) == "nan"
    assert wording.percent(None) == "-"


def test_other_numbers_have_four_decimals_until_they_are_huge():
    assert wording.decimal(0.93214) == "0.9321"
    assert wording.decimal(12345.678) == "1.235e+04"
    assert wording.decimal(math.inf) == "inf"
    assert wording.decimal(None) == "-"


def test_a_metric_is_written_by_its_kind():
    assert wording.value("test/mcc", 0.5) == "50.00 %"
    assert wording.value("clients/gm_appeal", 0.5) == "50.00 %"
    assert wording.value("train/loss", 0.5) == "0.5000"
    assert wording.value("server/support_vectors", 12.0) == "12.0000"


@pytest.mark.parametrize("key", ["test/loss", "clients/loss_mean", "unseen/tuned_loss_mean", "validation/loss"])
def test_losses(key):
    assert wording.is_loss(key)
    assert not wording.is_share(key)


@pytest.mark.parametrize(
    "key",
    [
        "clients/gm_appeal",
        "clients/tuned_gm_appeal",
        "test/accuracy_of_all",
        "test/accuracy_of_participants",
        "test/f1",
    ],
)
def test_shares(key):
    assert wording.is_share(key)
    assert not wording.is_loss(key)


def test_names():
    assert wording.name("clients/tuned_gm_appeal") == "clients tuned GM-Appeal"
    assert wording.name("unseen/tuned_loss_mean") == "unseen tuned mean loss"
    assert wording.name("test/accuracy_of_all") == "test accuracy of all"
    assert wording.name("test/f1") == "test F1"
    assert wording.name("clients/gm_appeal") == "clients GM-Appeal"
    assert wording.name("accuracy") == "accuracy"
    assert wording.name("server/support_vectors") == "server support vectors"


@pytest.mark.parametrize(
    ("share", "text"), [(0.7, "70 %"), (0.925, "92.5 %"), (0.58, "58 %"), (1.0, "100 %"), (0.29, "29 %")]
)
def test_targets(share, text):
    assert wording.target(Target.of(share)) == text


def test_targets_of_other_metrics() -> None:
    assert wording.target(Target.of("test/perplexity:40")) == "test perplexity 40"
    assert wording.target(Target.of("clients/accuracy_mean:0.7")) == "clients mean accuracy 70 %"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1:00 min"),
        (123.4, "2:03 min"),
        (4000, "1:06:40"),
        (100_000, "27:46:40"),
    ],
)
def test_durations(seconds, text):
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(("speed", "text"), [(0.0312, "0.0312"), (3.4149, "3.41"), (99.5, "99.5"), (12345.6, "12,346")])
def test_rates(speed, text):
    assert wording.rate(speed) == text


def test_known_metrics_in_order():
    keys = ["time/round_s", "train/loss", "unseen/accuracy", "test/loss", "clients/gm_appeal", "test/accuracy"]
    keys += ["clients/tuned_accuracy_mean", "clients/loss_mean"]
    assert wording.in_order(keys) == [
        "test/accuracy",
        "test/loss",
        "train/loss",
        "clients/gm_appeal",
        "clients/loss_mean",
        "clients/tuned_accuracy_mean",
        "unseen/accuracy",
    ]


def test_counted():
    assert wording.counted(1, "round") == "1 round"
    assert wording.counted(0, "round") == "0 rounds"
    assert wording.counted(30, "round") == "30 rounds"
