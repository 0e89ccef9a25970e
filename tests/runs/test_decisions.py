"""What a run says about the choices that its command leaves to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.datasets.in_memory import InMemory
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.partitions.base import Partition
from fedrun.data.partitions.iid import IID
from fedrun.data.partitions.train_split import with_pooled_test
from fedrun.experiment.experiment import build_experiment
from fedrun.runs.decisions import decisions, named_choice
from fedrun.simulation.simulation import Simulation


def decided(*overrides: str) -> dict[str, str]:
    experiment = build_experiment(compose(["partition.clients=8", "hardware.threads=1", "tracking=none", *overrides]))
    simulation = Simulation(experiment)
    return dict(decisions(experiment, simulation, simulation.initial()))


def test_defaults_and_what_the_command_names() -> None:
    shown = decided("clients_per_round=3", "model=logistic")
    assert shown["model"] == "logistic, 650 parameters"  # 64 pixels and a bias for each of 10 digits
    assert shown["partition"] == "dirichlet (the default of dataset=digits)"
    assert shown["hparams"] == "none published for this dataset"
    assert shown["cohort"] == "3 of 8 clients per round"
    assert shown["machine"].startswith("1 process with 1 thread, ")
    assert shown["machine"].endswith("; executor in_process")


@pytest.mark.parametrize(
    ("overrides", "group", "expected"),
    [
        ("dataset=mnist", "model", "mnist_2nn (the default of dataset=mnist)"),
        ("hparams=mcmahan_cnn", "model", "mnist_cnn (of hparams=mcmahan_cnn)"),
        ("hparams=mcmahan_cnn model=mnist_2nn", "model", "mnist_2nn"),
        ("dataset=cifar10 hparams=fedconcat_c2", "partition", "labels (of hparams=fedconcat_c2)"),
        ("dataset=femnist strategy=fedprox", "partition", "natural (the default of dataset=femnist)"),
    ],
)
def test_what_has_chosen_an_option_that_the_command_does_not_name(overrides: str, group: str, expected: str) -> None:
    assert named_choice(build_experiment(compose(overrides.split())), group) == expected


@pytest.mark.parametrize("drawn", ["participation=bernoulli", "privacy=user_level privacy.noise_multiplier=1"])
def test_a_random_number_of_participants(drawn: str) -> None:
    shown = decided("clients_per_round=3", *drawn.split())
    assert shown["cohort"] == "about 3 of 8 clients per round, drawn independently"


def test_published_values_that_the_command_leaves_out() -> None:
    assert decided("~hparams")["hparams"] == "none (~hparams)"
    assert decided("hparams=mnist", "~hparams")["hparams"] == "none (~hparams)"  # a job of an experiment


def test_a_gpu_that_the_run_does_not_use(monkeypatch) -> None:
    assert "GPU" not in decided()["machine"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert decided()["machine"].endswith("; executor vectorized; hardware=gpu would use this machine's GPU")


def test_objects_that_replaced_an_option() -> None:
    """The partition is still the default of the composed dataset; there is no option for data in memory."""
    experiment = build_experiment(compose(["partition.clients=2", "hardware.threads=1", "tracking=none"]))
    samples = (np.zeros((40, 3), np.float32), np.arange(40) % 2)
    own = replace(experiment, dataset=InMemory.of(samples, samples, classes=2))
    simulation = Simulation(own)
    assert decisions(own, simulation, simulation.initial())["partition"] == "dirichlet (the default of dataset=digits)"
    own = replace(own, partition=IID(clients=2, seed=None))
    simulation = Simulation(own)
    assert decisions(own, simulation, simulation.initial())["partition"] == "IID"


def test_what_the_partition_found_in_the_data(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["a,y", *(f"{row},{row % 2}" for row in range(50))]))
    shown = decided("dataset=tabular", f"dataset.file={table}")
    assert shown["partition"] == "users_or_iid (the default of dataset=tabular); as iid: samples have no users"
    assert shown["cohort"] == "4 of 8 clients per round"


def test_a_key_that_noised_training_does_not_use() -> None:
    shown = decided("privacy=sample_level", "privacy.noise_multiplier=1", "privacy.sample_share=0.05", "local.epochs=2")
    assert shown["batches"] == ("each sample with probability 0.05 per step, 40 steps; local.batch_size is not used")
    assert "batches" not in decided()


@pytest.mark.parametrize(
    ("overrides", "tested"),
    [
        ((), "the global model on 355 pooled test samples"),
        (("strategy=ditto", "population.test_share=0.3"), "each client's own model on the client's own test samples"),
        (("strategy=solo",), "each client's own model on 355 pooled test samples; means over clients"),
        (("strategy=ifca",), "the summed logits of all models on 355 pooled test samples"),
        (
            ("strategy=fedconcat", "rounds=10", "strategy.post_training.rounds=4"),
            "the summed logits of all models, from round 7 the concatenated model, on 355 pooled test samples",
        ),
        (
            ("strategy=ifca", "population.test_share=0.3"),
            "the model of each client's cluster on the client's own test samples",
        ),
    ],
)
def test_what_is_tested(overrides: tuple[str, ...], tested: str) -> None:
    assert decided(*overrides)["tested"] == tested


def test_validation_samples_are_named() -> None:
    assert decided("validation.share=0.1")["tested"].endswith(" pooled validation samples")


@config_class
class Halves(Partition):
    """Two clients; each tests on its first ten samples, or on none."""

    tests: bool

    def split(self, dataset: Dataset, seed: int) -> Federation:
        halves = np.split(np.arange(200), 2)
        federation = with_pooled_test(dataset, ClientIndices.of([half[10:] for half in halves]))
        return replace(federation, client_test=ClientIndices.of([half[:10] for half in halves]) if self.tests else None)


def test_what_a_users_partition_tests() -> None:
    experiment = build_experiment(compose(["hardware.threads=1", "clients_per_round=1", "strategy=ditto"]))

    def shown(tests: bool) -> dict[str, str]:
        own = replace(experiment, partition=Halves(tests=tests))
        simulation = Simulation(own)
        return dict(decisions(own, simulation, simulation.initial()))

    assert shown(True)["tested"] == "each client's own model on the client's own test samples"
    assert "accuracy" not in shown(True)
    assert shown(False)["tested"] == "each client's own model on 355 pooled test samples; means over clients"
    assert shown(False)["accuracy"] == (
        "own models are tested on the pooled samples of all clients; population.test_share=0.3 tests them on the "
        "clients' own"
    )


def test_a_papers_accuracy_that_is_not_recorded() -> None:
    babu = ("strategy=fedbabu", "population.test_share=0.3")
    assert decided(*babu)["accuracy"].endswith("; set evaluation.tuning_epochs=5 to record it")
    assert "accuracy" not in decided(*babu, "evaluation.tuning_epochs=5")
    assert "accuracy" not in decided("strategy=ifca", "evaluation.model=tuned")  # clusters cannot be tuned
