"""Thresholds: trained, constant, from a file; what is compared with them; what other runs find in the cache."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrun.config.build import option
from fedrun.data.datasets.augmentation import Augmentation
from fedrun.data.datasets.base import Scaled
from fedrun.data.datasets.in_memory import InMemory
from fedrun.data.federation import ClientIndices
from fedrun.data.tasks.classification import Classification
from fedrun.evaluation import thresholds
from fedrun.evaluation.client_groups import ClientGroup
from fedrun.evaluation.threshold_cache import key
from fedrun.experiment.appeal.file import read
from fedrun.models.flat_network import Layout, Slot
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.system.randomness import address, generator

from ..helpers.appeal import TESTED, warmup
from ..helpers.naive_averaging import NaiveClients
from ..helpers.small_networks import NETWORKS, advanced, measured, mlp, network_of

LAYOUT = Layout((Slot("a", (2,), 0, 2, "Linear"), Slot("b", (1,), 2, 3, "Linear")), 3, 3, slice(0, 0), 0, 0)
INITIAL = torch.zeros(LAYOUT.size)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_hundred_steps_alone(make_experiment, network):
    """Seen and unseen clients alike start from the initial model, with a rate and batches of the warm-up's own."""
    build = NETWORKS[network]
    simulation = Simulation(
        make_experiment(
            network=build,
            sizes=(6, 12, 5, 13),
            local={"momentum": 0.5, "weight_decay": 0.01},
            population=replace(TESTED, unseen_clients=1),
            clients_per_round=2,
            appeal=warmup(lr=0.05, batch_size=3),
        )
    )
    federation = simulation.federation
    assert federation.unseen is not None
    for name, train, test in (
        ("clients", federation.train, federation.client_test),
        ("unseen", federation.unseen.train, federation.unseen.test),
    ):
        found = simulation.thresholds[name]
        for client in range(len(train)):
            order = generator(address(0, f"alone/{name}", -1), "batches", 0, client)
            clients = NaiveClients(lr=0.05, momentum=0.5, weight_decay=0.01, batch_size=3, epochs=None, steps=100)
            inputs, labels = simulation.dataset.inputs[train[client]], simulation.dataset.targets[train[client]]
            start = network_of(simulation, build)
            alone, _ = clients.train(start, inputs.float() / 255, labels, order, 0)
            loss, _ = measured(alone, simulation, train[client])
            test_loss, accuracy = measured(alone, simulation, test[client])
            assert found.train[client].item() == pytest.approx(loss, rel=2e-3)
            assert found.test[client].item() == pytest.approx(test_loss, rel=2e-3)
            assert found.solo_accuracy[client].item() == pytest.approx(accuracy)


@pytest.mark.parametrize("lr", [None, 0.05])
def test_rates_that_rise_over_the_rounds(make_experiment, lr):
    """They are of the federation's rounds: clients train alone with the whole rate, as without ``lr_warmup_rounds``."""
    whole, rising = (
        Simulation(make_experiment(network=mlp, local=local, appeal=warmup(steps=5, lr=lr))).thresholds["clients"].train
        for local in ({}, {"lr_warmup_rounds": 10})
    )
    assert torch.equal(whole, rising)


@pytest.mark.parametrize(("lr", "key"), [(1e30, r"appeal\.lr=1e\+30"), (None, r"local\.lr=1e\+30")])
def test_a_warm_up_that_diverges_is_refused(make_experiment, lr, key):
    """With NaN for a threshold no model would ever appeal to the client."""
    local = {} if lr else {"lr": 1e30}
    simulation = Simulation(make_experiment(network=mlp, clients_per_round=2, appeal=warmup(lr=lr), local=local))
    with pytest.raises(InputError, match=rf"{key}: the training that sets the thresholds diverged for \d of 6 clients"):
        _ = simulation.thresholds


@dataclass(frozen=True)
class WithoutLastClass(Classification):
    """The loss of samples of the last of three classes does not count."""

    def weights(self, targets):
        return (targets < 2).float()


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_a_client_whose_samples_have_no_weight_has_the_threshold_zero(make_experiment, executor):
    """It has not diverged: its loss is 0 as in training, before and after the warm-up, and no model appeals to it."""
    experiment = make_experiment(network=mlp, appeal=warmup(5), hardware={"executor": executor}, targets=())
    dataset = Simulation(experiment).dataset
    targets = dataset.targets.clamp_max(1)
    targets[Simulation(experiment).federation.train[3]] = 2
    dataset = replace(dataset, spec=replace(dataset.spec, task=WithoutLastClass()), targets=targets)
    simulation = Simulation(replace(experiment, dataset=InMemory(dataset)))
    assert (simulation.thresholds["clients"].train == 0).tolist() == [False, False, False, True, False, False]
    (results,) = simulation.evaluator(state := simulation.initial()).clients(state)["clients"].values()
    assert results.loss[3] == 0
    assert results.loss.isfinite().all()
    assert not results.appeal[3]


@pytest.mark.parametrize("convention", ["test", "train", "mixed"])
def test_what_is_compared(make_experiment, convention):
    """By an ordinary loop; preferred accuracy is not the better of the two."""
    experiment = make_experiment(
        network=mlp, population=TESTED, clients_per_round=2, appeal=warmup(steps=3, convention=convention)
    )
    simulation = Simulation(experiment)
    state = advanced(simulation, 2)
    network = mlp(simulation.dataset.spec)
    network.load_state_dict(simulation.network.layout.views(state.server.model.clone()))
    metrics = simulation.test(state)
    unseen = simulation.federation.unseen
    assert unseen is not None
    for name, train, test in (
        ("clients", simulation.federation.train, simulation.federation.client_test),
        ("unseen", unseen.train, unseen.test),
    ):
        rho = simulation.thresholds[name]
        appeals, preferred, accuracies = [], [], []
        for client in range(len(train)):
            loss, _ = measured(network, simulation, train[client] if convention == "train" else test[client])
            _, accuracy = measured(network, simulation, test[client])
            appeals.append(loss < (rho.test if convention == "test" else rho.train)[client].item())
            preferred.append(accuracy if appeals[-1] else rho.solo_accuracy[client].item())
            accuracies.append(accuracy)
        count = len(train)
        assert metrics[f"{name}/gm_appeal"] == pytest.approx(sum(appeals) / count)
        assert metrics[f"{name}/preferred_accuracy"] == pytest.approx(sum(preferred) / count)
        assert metrics[f"{name}/accuracy_mean"] == pytest.approx(sum(accuracies) / count)


@pytest.mark.parametrize(("tests", "expected"), [(0.0, "train"), (0.4, "test")])
def test_auto(make_experiment, tests, expected):
    population = replace(TESTED, test_share=tests)
    simulation = Simulation(make_experiment(network=mlp, population=population, clients_per_round=2, appeal=warmup(2)))
    named = Simulation(replace(simulation.experiment, appeal=warmup(2, convention=expected)))
    assert simulation.test(simulation.initial()) == pytest.approx(named.test(named.initial()), nan_ok=True)


def test_a_constant(make_experiment):
    simulation = Simulation(make_experiment(network=mlp, appeal=option("appeal", "constant", loss=0.7)))
    found = simulation.thresholds["clients"]
    assert found.train.tolist() == found.test.tolist() == [0.7] * 6
    assert found.solo_accuracy is None
    assert not any("preferred" in name for name in simulation.test(simulation.initial()))


# A file.


def from_file(path: Path):
    return option("appeal", "file", path=str(path))


def test_a_file_in_any_order_with_more_than_is_needed(make_experiment, tmp_path):
    path = tmp_path / "thresholds.csv"
    path.write_text("\ufeffthreshold,note,client\n1.5,,5\n2.5,hi,3\n0.25,,0\n9,,someone else\n-1,,2\n4e-1,,1\n3,,4\n")
    population = replace(TESTED, test_share=0.0)
    experiment = make_experiment(network=mlp, population=population, clients_per_round=2, appeal=from_file(path))
    simulation = Simulation(experiment)
    known = {"0": 0.25, "1": 0.4, "2": -1.0, "3": 2.5, "4": 3.0, "5": 1.5}
    found, unseen = simulation.thresholds, simulation.federation.unseen
    assert unseen is not None
    for name, train in (("clients", simulation.federation.train), ("unseen", unseen.train)):
        assert found[name].train.tolist() == [known[train.name(k)] for k in range(len(train))]


BAD = {
    "a column is missing": (b"client,loss\n0,1\n", "appeal.path={}: its first line must name the columns client and"),
    "empty": (b"", "appeal.path={}: its first line must name the columns client and threshold"),
    "no number": (b"client,threshold\n0,1\n1,low\n", "{}, line 3: threshold 'low': allowed: a finite number"),
    "infinite": (b"client,threshold\n0,inf\n", "{}, line 2: threshold 'inf': allowed: a finite number"),
    "a short line": (b"client,threshold\n0\n", "{}, line 2: threshold None: allowed: a finite number"),
    "twice": (b"client,threshold\n0,1\n0,1\n", "{}, line 3: client '0' has a threshold already"),
    "a client is missing": (
        b"client,threshold\n0,1\n2,1\n",
        "appeal.path={}: no threshold for client '1' and 3 oth",
    ),
    "not UTF-8": (b"client,threshold\n\xff\xfe,1\n", "appeal.path={}: cannot be read ("),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_file(make_experiment, tmp_path, content, message):
    path = tmp_path / "thresholds.csv"
    path.write_bytes(content)
    experiment = make_experiment(network=mlp, appeal=from_file(path))
    with pytest.raises(InputError) as refused:
        Simulation(experiment)
    assert str(refused.value).startswith(message.format(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()], ids=["missing", "a folder"])
def test_no_file(tmp_path, make: Callable[[Path], None]):
    path = tmp_path / "thresholds.csv"
    make(path)
    with pytest.raises(InputError, match="thresholds.csv: cannot be read .*a CSV file in UTF-8 is expected"):
        read(path)


# The cache.


def test_a_second_run_reads_what_the_first_has_computed(make_experiment, tmp_path, monkeypatch):
    experiment = make_experiment(network=mlp, population=TESTED, clients_per_round=2, appeal=warmup(5))
    first = Simulation(experiment, cache=tmp_path / "cache").thresholds
    (path,) = (tmp_path / "cache" / "thresholds").iterdir()
    again = Simulation(replace(experiment, rounds=7, clients_per_round=1), cache=tmp_path / "cache")
    monkeypatch.setattr(thresholds, "own_results", lambda *_: pytest.fail("computed"))
    found = again.thresholds
    assert set(found) == set(first) == {"clients", "unseen"}
    for name in first:
        for field in ("train", "test", "solo_accuracy"):
            assert torch.equal(getattr(found[name], field), getattr(first[name], field))
            assert getattr(found[name], field).dtype == torch.float64
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"whatever this is, it is not safetensors", None])
def test_a_damaged_cache_is_computed_again(make_experiment, tmp_path, caplog, content):
    experiment = make_experiment(network=mlp, appeal=warmup(5))
    first = Simulation(experiment, cache=tmp_path).thresholds
    (path,) = (tmp_path / "thresholds").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:] if content is None else content)
    with caplog.at_level(logging.WARNING):
        found = Simulation(experiment, cache=tmp_path).thresholds
    assert f"{path}: cannot be used (" in caplog.text and "the thresholds are computed again" in caplog.text
    assert torch.equal(found["clients"].train, first["clients"].train)
    assert path.read_bytes() == whole


def test_the_key_changes_with_what_thresholds_depend_on(make_experiment):
    experiment = make_experiment(network=mlp, appeal=warmup(5))
    changed = [
        replace(experiment, local=replace(experiment.local, lr=0.2)),
        replace(experiment, appeal=warmup(6)),
        replace(experiment, appeal=warmup(5, lr=0.01)),
        replace(experiment, seed=1),
        replace(experiment, population=TESTED),
        replace(experiment, partition=replace(experiment.partition, sizes=(30, 30))),
        replace(experiment, attack=option("attack", "label_flip", share=0.5)),
        replace(experiment, validation=replace(experiment.validation, share=0.2)),
        make_experiment(network=NETWORKS["batch_norm"], appeal=warmup(5)),
    ]
    data, clients = (
        experiment.dataset.load(),
        [ClientGroup("clients", ClientIndices.of([np.array([0, 1]), np.array([2])]), None)],
    )
    others = [
        replace(data, fingerprint="other"),
        replace(data, encoding=Scaled(255.0, (0.5,))),
        replace(data, augmentation=Augmentation(pad=1, crop=1.0, flip=0.5, rotation=0.0, fill="reflect")),
    ]
    regrouped = [ClientGroup("clients", ClientIndices.of([np.array([0]), np.array([1, 2])]), None)]
    keys = {key(each, data, LAYOUT, INITIAL, "", clients) for each in (experiment, *changed)}
    keys |= {key(experiment, each, LAYOUT, INITIAL, "", clients) for each in others}
    keys.add(key(experiment, data, LAYOUT, INITIAL, "", regrouped))
    keys.add(key(experiment, data, replace(LAYOUT, slots=LAYOUT.slots[:1]), INITIAL, "", clients))
    keys.add(key(experiment, data, LAYOUT, INITIAL + 1, "", clients))  # such as another file of pretrained weights
    keys.add(key(experiment, data, LAYOUT, INITIAL, "other", clients))
    assert len(keys) == 1 + len(changed) + len(others) + 4
    for same in (replace(experiment, rounds=3), replace(experiment, clients_per_round=2)):
        assert key(same, data, LAYOUT, INITIAL, "", clients) == key(experiment, data, LAYOUT, INITIAL, "", clients)


def test_validation_samples_do_not_tell_a_later_runs_thresholds(make_experiment, tmp_path):
    experiment = make_experiment(network=mlp, population=TESTED, clients_per_round=2, appeal=warmup(5))
    held = replace(experiment, validation=replace(experiment.validation, share=0.4))
    assert set(Simulation(held, cache=tmp_path).thresholds) == {"clients"}
    found, expected = (Simulation(experiment, cache=cache).thresholds for cache in (tmp_path, None))
    assert set(found) == {"clients", "unseen"}
    assert torch.equal(found["clients"].train, expected["clients"].train)


def test_a_cache_that_cannot_be_written_costs_nothing(make_experiment, tmp_path, caplog):
    path = tmp_path / "cache"
    path.write_text("a file, not a folder")
    simulation = Simulation(make_experiment(network=mlp, appeal=warmup(5)), cache=path / "deeper")
    with caplog.at_level(logging.WARNING):
        assert simulation.thresholds["clients"].train.isfinite().all()
    assert "cannot be written (" in caplog.text and "other runs will compute the thresholds again" in caplog.text


def test_a_file_of_thresholds_is_read_anew(make_experiment, tmp_path):
    """It may have changed since."""
    path = tmp_path / "thresholds.csv"
    experiment = make_experiment(network=mlp, appeal=from_file(path))
    for loss in (1.0, 2.0):
        path.write_text("client,threshold\n" + "".join(f"{client},{loss}\n" for client in range(6)))
        found = Simulation(experiment, cache=tmp_path / "cache").thresholds
        assert found["clients"].train.tolist() == [loss] * 6
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("convention", ["test", "train", "mixed"])
def test_the_convention_that_was_asked_for_counts(tmp_path, convention):
    assert option("appeal", "constant", loss=1.0, convention=convention).losses == convention
    assert option("appeal", "file", path=str(tmp_path / "x.csv"), convention=convention).losses == convention
