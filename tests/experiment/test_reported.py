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


OF_TUNED = "the accuracy of models that clients have tuned; set"
OF_OWN = "evaluation.model=own asks for the accuracy of clients' own models, and this strategy has none"
TUNING, SHARE = "evaluation.tuning_epochs=5", "population.test_share=0.3"


@pytest.mark.parametrize(
    ("client", "settings", "tests", "expected"),
    [
        ("fedbabu", {}, True, f"the strategy's paper reports {OF_TUNED} {TUNING} to record it"),
        ("fedbabu", {}, False, f"the strategy's paper reports {OF_TUNED} {SHARE} {TUNING} to record it"),
        ("fedbabu", {"tuning_epochs": 5}, True, ""),
        ("fedbabu", {"tuning_steps": 1}, True, ""),
        ("fedbabu", {"model": "own"}, True, ""),
        ("sgd", {"model": "tuned"}, True, f"evaluation.model=tuned asks for {OF_TUNED} {TUNING} to record it"),
        ("fedper", {"model": "global"}, False,
         f"evaluation.model=global asks for the accuracy of the global model; set {SHARE} to record it"),
        ("fedper", {"model": "global"}, True, ""),
        ("sgd", {"model": "global"}, False, ""),
        ("fedper", {}, True, ""),
        ("fedper", {}, False, "own models are tested on the pooled samples of all clients; population.test_share=0.3 "
                              "tests them on the clients' own"),
        ("solo", {"model": "tuned"}, True, ""),  # there is no global model to tune
        ("sgd", {"model": "own"}, True, OF_OWN),
        ("sgd", {"model": "own"}, False, OF_OWN),
        ("sgd", {"average": "clients"}, False,
         f"evaluation.average=clients asks for a mean over clients; set {SHARE} to record it"),
        ("sgd", {"average": "clients"}, True, ""),
        ("sgd", {"average": "samples"}, False, ""),
    ],
)  # fmt: skip
def test_the_keys_without_which_it_is_not_recorded(default_experiment, client, settings, tests, expected):
    evaluation = replace(default_experiment.evaluation, **settings)
    assert evaluation.unrecorded(option("strategy/client", client), tests) == expected


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("own", ["ditto", "apfl", "fedper", "fedrep", "pfedme", "pfedfda", "fedala", "fedsalora"]),
        ("global", ["sgd", "fedprox", "scaffold", "lora_ranks"]),
    ],
)
def test_what_a_strategy_reports_unless_it_says_so(model, names):
    for name in names:
        assert option("strategy/client", name).reported == (model, "samples")
