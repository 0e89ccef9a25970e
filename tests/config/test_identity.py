"""The identity of a run: what its hash depends on, and the names that follow from its values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral, identity, identity_hash, is_neutral_class
from fedrun.experiment.experiment import Experiment, build_experiment


def build(*overrides: str) -> Experiment:
    return build_experiment(compose(overrides))


FREE = (
    "hardware",
    "tracking",
    "seed",
    "name",
    "scale",
    "display",
    "output_dir",
    "overwrite",
    "checkpoint_seconds",
    "cache_dir",
)


def hash_of(*overrides: str) -> str:
    return build(*overrides).record.hash


def altered(value: Any) -> Any:
    """Another value of the same type; the hash needs no valid ones."""
    match value:
        case bool():
            return not value
        case None | int() | float():
            return (value or 0) + 1
        case str():
            return f"{value}s"
        case tuple():
            return (*value, 1)
    raise AssertionError(f"no other value for {value!r}")


def changes(value: Any, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key below a config object, with a copy of the object in which this key alone has another value."""
    for item in dataclasses.fields(value):
        if item.name == "origin":
            continue
        part = getattr(value, item.name)
        inner = changes(part, *above, item.name) if dataclasses.is_dataclass(part) else [((*above, item.name), None)]
        for keys, other in inner:
            changed = copy(value)
            changed.__dict__.pop("record", None)
            changed.__dict__[item.name] = altered(part) if other is None else other
            yield keys, changed


@pytest.mark.parametrize("chosen", ["strategy=turbosvm", "dataset=femnist", "dataset=mnist", "clock=lognormal"])
def test_the_hash_changes_with_what_can_change_a_result(chosen: str) -> None:
    experiment = build(chosen)
    assert re.fullmatch("[0-9a-f]{8}", experiment.record.hash)
    seen = set()
    for keys, other in changes(experiment):
        free = keys[0] in FREE or keys in (("cache_dir",), ("dataset", "cache_dir"), ("dataset", "download"))
        free |= keys == ("evaluation", "batch_size") and not experiment.evaluation.adaptive
        assert (other.record.hash == experiment.record.hash) == free, keys
        seen.add(keys)
    assert {("local", "lr"), ("rounds",), ("evaluation", "tuning_lr"), ("strategy", "server", "weighting")} & seen


@dataclasses.dataclass(frozen=True)
class OwnDigits:
    """A dataset of a user whose key ``download`` says which data."""

    download: str


def test_a_users_dataset_has_a_folder_for_each_of_its_values() -> None:
    one, other = (identity(OwnDigits(year), "dataset") for year in ("2020", "2024"))
    assert one != other


def test_the_hash_does_not_depend_on_the_way_to_the_same_configuration() -> None:
    one = hash_of("strategy=fedprox", "local.lr=0.3")
    assert one == hash_of("local.lr=0.3", "seed=7", "strategy=fedprox", "hardware=gpu", "tracking=none")
    config = compose(["strategy=fedprox", "local.lr=0.3"]).config
    assert one == build_experiment(dict(reversed(config.items()))).record.hash
    assert one == replace(build("strategy=fedprox"), local=build("local.lr=0.3").local).record.hash
    assert hash_of("local.lr=1") == hash_of("local.lr=1.0")
    assert hash_of("clients_per_round=1") != hash_of("clients_per_round=1.0")  # one client, all clients


def test_a_run_out_of_memory_continues_with_smaller_batches_of_its_evaluation() -> None:
    """They change rounding only; adaptive evaluation also draws that many samples at once."""
    assert hash_of("evaluation.batch_size=64") == hash_of()
    adaptive = [hash_of("evaluation.adaptive=true", f"evaluation.batch_size={size}") for size in (64, 256)]
    assert adaptive[0] != adaptive[1]


def test_the_seed_of_a_partition_is_part_of_the_hash() -> None:
    assert hash_of("partition.seed=0") != hash_of()


@config_class
class Before:
    rate: float


@config_class
class Noise:
    scale: Annotated[float, Neutral(0.0)]


def test_a_key_that_is_added_later_leaves_hashes_while_it_is_neutral() -> None:
    @config_class
    class After:
        rate: float
        steps: Annotated[int | None, Neutral(None)]
        noise: Annotated[Noise, Neutral(Noise)]

    def hash_after(**changes: Any) -> str:
        settings = {"rate": 0.1, "steps": None, "noise": Noise(scale=0.0), **changes}
        return identity_hash(After, settings)

    before = identity_hash(Before, {"rate": 0.1})
    assert hash_after() == before
    others = [hash_after(steps=0), hash_after(steps=1), hash_after(noise=Noise(scale=0.5)), hash_after(rate=0.2)]
    assert len({before, *others}) == 5
    After.__qualname__ = Before.__qualname__  # in a folder's name the class counts, too
    nested = identity(After(rate=0.1, steps=None, noise=Noise(scale=0.0)), "part")
    assert nested == identity(Before(rate=0.1), "part")


def test_what_a_run_does_not_use_is_not_in_its_hash() -> None:
    """As if there were no attacks and thresholds."""
    experiment = build("attack=none", "attack.seed=null")
    settings = {item.name: getattr(experiment, item.name) for item in dataclasses.fields(experiment)}
    del settings["origin"]
    for unused in ("attack", "appeal", "participation", "initial"):
        del settings[unused]
        assert identity_hash(Experiment, settings) == experiment.record.hash
    assert hash_of("attack=gaussian", "attack.share=0.2") != experiment.record.hash
    assert hash_of("appeal=warmup") != experiment.record.hash


def test_a_module_of_fedrun_can_move_and_a_class_of_ones_own_counts_with_its_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = build("strategy=fedprox")
    before, client = experiment.record.hash, type(experiment.strategy.client)
    monkeypatch.setattr(client, "__module__", "fedrun.elsewhere")
    assert replace(experiment).record.hash == before
    monkeypatch.setattr(client, "__module__", "own.fedprox")
    assert replace(experiment).record.hash != before


def test_folders() -> None:
    experiment = build("dataset=mnist", "strategy=turbosvm", "seed=3", "output_dir=here", "name=paper/table2")
    record = experiment.record
    assert record.group == f"paper/table2/mnist/turbosvm/{record.hash}"
    assert experiment.folder == Path(f"here/paper/table2/mnist/turbosvm/{record.hash}/seed=3")
    assert record.title == "turbosvm · mnist · seed 3"
    assert record.overrides == (
        "dataset=mnist",
        "strategy=turbosvm",
        "seed=3",
        "output_dir=here",
        "name=paper/table2",
    )


def test_a_changed_experiment_is_named_by_what_it_is() -> None:
    experiment = build("strategy=turbosvm", "seed=3")
    changed = replace(experiment, seed=4, strategy=build("strategy=fedprox", "strategy.client.mu=0.2").strategy)
    record = changed.record
    assert (record.strategy, record.dataset, record.title) == ("fedavg", "digits", "fedavg · digits · seed 4")
    assert record.overrides == ("strategy=turbosvm", "seed=3", *record.overrides[2:])
    assert record.overrides[2:] == ("strategy.client=FedProx", "strategy.server=FedAvg", "seed=4")
    assert record.config["strategy"]["client"] == {"_target_": "fedrun.strategies.fedprox.FedProx", "mu": 0.2}
    assert record.hash == build("strategy=fedprox", "strategy.client.mu=0.2").record.hash
    again = build_experiment(record.config)
    assert (again, again.record.hash) == (changed, record.hash)


@pytest.mark.parametrize("arguments", [None, {}, {"width": 8}, {"width": 8, "depth": 3}, {"sizes": {"width": 8}}])
def test_a_changed_mapping_is_recorded_whole(arguments: dict[str, object] | None) -> None:
    """A key that it has no more is a change, too; the overrides repeat the run."""
    chosen = ("model=custom", "model.target=builtins.dict")
    experiment = build(*chosen, "model.arguments={width: 8, depth: 2}")
    changed = replace(experiment, model=replace(experiment.model, arguments=arguments))
    record = changed.record
    assert record.config["model"]["arguments"] == arguments
    assert build_experiment(record.config).record.hash == record.hash != experiment.record.hash
    assert build(*chosen, record.overrides[-1]).record.hash == record.hash
    back = replace(changed, model=experiment.model)
    assert (back.record.overrides, back.record.hash) == (experiment.record.overrides, experiment.record.hash)


def test_a_mapping_in_place_of_none_is_recorded_whole() -> None:
    experiment = build("model=custom", "model.target=builtins.dict")
    changed = replace(experiment, model=replace(experiment.model, arguments={"width": 8}))
    assert changed.record.overrides[2:] == ("model.arguments={width:8}",)


def test_classes_that_mean_what_a_run_without_the_key_did():
    base = "fedrun.experiment.aggregation.base.Aggregation"
    assert is_neutral_class(Experiment, "aggregation", base)
    assert not is_neutral_class(Experiment, "aggregation", base.replace("Aggregation", "FedBuff"))
    assert not is_neutral_class(Experiment, "aggregation", None)
    assert not is_neutral_class(Experiment, "dataset", base)  # it has no neutral value
