"""Which accuracy a run reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedrun.config.build import option

POOLED = ("test/accuracy", "test/loss")
CLIENTS = (*POOLED, "clients/accuracy_mean", "clients/accuracy_weighted")
PERSONAL = (*CLIENTS, "clients/global_accuracy_mean", "clients/global_accuracy_weighted")
TUNED = (*PERSONAL, "clients/tuned_accuracy_mean", "clients/tuned_accuracy_weighted")


@pytest.mark.parametrize(
    ("client", "settings", "recorded", "expected"),
    [
        ("sgd", {}, POOLED, "test/accuracy"),
        ("sgd", {}, ("validation/accuracy",), "validation/accuracy"),
        ("sgd", {}, CLIENTS, "clients/accuracy_weighted"),
        ("sgd", {"average": "clients"}, CLIENTS, "clients/accuracy_mean"),
        ("sgd", {"model": "tuned"}, TUNED, "clients/tuned_accuracy_weighted"),
        ("fedrep", {}, PERSONAL, "clients/accuracy_weighted"),
        ("fedrep", {"model": "global"}, PERSONAL, "clients/global_accuracy_weighted"),
        ("fedproto", {}, PERSONAL, "clients/accuracy_mean"),
        ("pfedfda", {}, PERSONAL, "clients/accuracy_weighted"),
        ("fedbabu", {}, TUNED, "clients/tuned_accuracy_mean"),
        ("fedbabu", {}, PERSONAL, "clients/accuracy_mean"),  # without tuning
        ("fedbabu", {}, POOLED, "test/accuracy"),
        ("fedbabu", {}, ("test/loss",), None),
    ],
)
def test_the_papers_accuracy_or_what_is_asked_for(default_experiment, client, settings, recorded, expected):
    evaluation = replace(default_experiment.evaluation, **settings)
    assert evaluation.reported(option("strategy/client", client), recorded) == expected
