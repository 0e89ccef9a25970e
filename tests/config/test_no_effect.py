"""Overrides of keys that have no effect beside other keys' values."""

from __future__ import annotations

from itertools import chain
from typing import get_type_hints

import pytest

from fedrun.config.build import locate
from fedrun.config.composed import compose
from fedrun.config.key_reference import explain_key, key_entries
from fedrun.config.marks import unused_with
from fedrun.config.options import conf_dir
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.system.errors import InputError

REJECTED = [
    ("local.beta1=0.5", "with local.optimizer=sgd; leave it out, or change local.optimizer"),
    (
        "local.eps=1e-6 local.optimizer=nesterov local.momentum=0.9",
        "with local.optimizer=nesterov; leave it out, or change local.optimizer",
    ),
    ("local.lr_decay_rounds=10", "with local.lr_decay=1.0; leave it out, or change local.lr_decay"),
    ("evaluation.full_every=5", "with evaluation.adaptive=false; leave it out, or change evaluation.adaptive"),
    (
        "evaluation.tuning_lr=0.01",
        "with evaluation.tuning_steps=0 and evaluation.tuning_epochs=0; leave it out, or change "
        "evaluation.tuning_steps or evaluation.tuning_epochs",
    ),
    ("validation.of=clients", "with validation.share=0.0; leave it out, or change validation.share"),
    ("validation.samples=last", "with validation.share=0.0; leave it out, or change validation.share"),
    (
        "validation.samples=last validation.share=0.2 validation.of=clients",
        "with validation.of=clients; leave it out, or change validation.of",
    ),
    (
        "strategy.clustering.max_clusters=4 strategy=fedconcat strategy.clustering.clusters=3",
        "with strategy.clustering.clusters=3; leave it out, or change strategy.clustering.clusters",
    ),
    ("population.test_of=last", "with population.test_share=0.0; leave it out, or change population.test_share"),
    (
        "aggregation.b=3 aggregation=fedbuff aggregation.staleness=polynomial clock=tiers",
        "with aggregation.staleness=polynomial; leave it out, or change aggregation.staleness",
    ),
    (
        "compression.scope=vector compression=sign compression.rule=vote compression.memory=none",
        "with compression.rule=vote; leave it out, or change compression.rule",
    ),
    (
        "model.lora.alpha=8 model=custom model.target=tests.helpers.small_networks.mlp",
        "with model.lora.rank=null; leave it out, or change model.lora.rank",
    ),
    (
        "compression.memory_decay=0.5 compression=quantize",
        "with compression.memory=none; leave it out, or change compression.memory",
    ),
    (
        "compression.bits=8 compression=quantize compression.rule=ternary",
        "with compression.rule=ternary; leave it out, or change compression.rule",
    ),
    (
        "strategy.server.degree=5 strategy=turbosvm strategy.server.kernel=rbf",
        "with strategy.server.kernel=rbf; leave it out, or change strategy.server.kernel",
    ),
    (
        "dataset.beta=3 dataset=synthetic_feddyn",
        "with dataset.own_data=false; leave it out, or change dataset.own_data",
    ),
]


@pytest.mark.parametrize(("overrides", "reason"), REJECTED)
def test_rejected(overrides: str, reason: str) -> None:
    with pytest.raises(InputError) as rejected:
        build_experiment(compose(overrides.split()))
    assert str(rejected.value) == f"{overrides.split(maxsplit=1)[0]}: has no effect {reason}"


def test_a_key_within_a_mapping_is_rejected() -> None:
    with pytest.raises(
        InputError, match=r"^local=\{beta1: 0.5\}: local.beta1 has no effect with local.optimizer=sgd; leave"
    ):
        build_experiment(compose(["local={beta1: 0.5}"]))


@pytest.mark.parametrize(
    "overrides",
    [
        "local.optimizer=adam local.beta1=0.5 local.eps=1e-6",
        "local.lr_decay=0.9 local.lr_decay_rounds=10",
        "evaluation.tuning_epochs=1 evaluation.tuning_lr=0.01 population.test_share=0.3",
        "validation.share=0.2 validation.of=clients",
        "validation.share=0.2 validation.samples=last",
        "strategy=fedconcat strategy.clustering.clusters=null strategy.clustering.max_clusters=4",
        "aggregation=fedbuff aggregation.staleness=hinge aggregation.b=3 clock=tiers",
        "aggregation=fedbuff aggregation.staleness=polynomial aggregation.a=1 clock=tiers",
        "local.beta1=0.9 local.lr_decay_rounds=1 population.test_of=auto validation.of=samples",  # the defaults
        "evaluation.full_every=null evaluation.tuning_lr=null",
        "dataset=femnist evaluation.adaptive=false evaluation.full_every=null",
    ],
)
def test_accepted(overrides: str) -> None:
    build_experiment(compose(overrides.split()))


def test_what_a_published_setting_or_a_copy_sets_is_not_checked() -> None:
    """Settings and experiments give keys to several strategies and optimizers."""
    experiment = build_experiment(compose(["dataset=femnist"]))
    assert not experiment.evaluation.tuned_by and experiment.evaluation.tuning_part == "model"


def test_every_mark_names_a_key_of_its_class_and_values_that_it_allows() -> None:
    found = 0
    for entry in key_entries([conf_dir()])[0]:
        if entry.owner.startswith("hydra_plugins.") or (not entry.owner and "." in entry.key):
            continue
        owner = locate(entry.owner, entry.key) if entry.owner else Experiment
        for mark in chain.from_iterable(unused_with(owner, entry.key.rpartition(".")[2])):
            found += 1
            assert mark.key in get_type_hints(owner) and mark.values != (), (owner, mark)
    assert found >= 20


def test_the_explanation_names_the_other_values() -> None:
    assert "\n  unused   with local.optimizer=sgd or nesterov\n" in explain_key("local.beta2", Experiment)
    both = "\n  unused   with evaluation.tuning_steps=0 and evaluation.tuning_epochs=0\n"
    assert both in explain_key("evaluation.tuning_part", Experiment)
    either = "\n  unused   with validation.share=0.0 or validation.of=clients\n"
    assert either in explain_key("validation.samples", Experiment)
    given = "\n  unused   with strategy.clustering.clusters other than null\n"
    assert given in explain_key("strategy.clustering.max_clusters", Experiment)
    assert "unused" not in explain_key("local.lr", Experiment)
