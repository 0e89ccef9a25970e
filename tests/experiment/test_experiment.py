"""Combinations that cannot work are refused before anything is loaded, in one line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.in_memory import InMemory
from fedrun.data.tasks.base import SampleResults
from fedrun.data.tasks.classification import Classification
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError

REFUSED = {
    "appeal=warmup appeal.convention=test": "appeal.convention=test needs test samples of every client; set",
    "appeal=warmup appeal.convention=mixed": "appeal.convention=mixed needs test samples of every client; set",
    "evaluation.tuning_steps=2 evaluation.tuning_epochs=1": "evaluation.tuning_steps=2 and evaluation.tuning_ep",
    "evaluation.tuning_steps=2": "evaluation.tuning_steps=2 needs test samples of every client; set population",
    "participation=flexible": "participation=flexible needs every client's threshold; choose appeal=warmup",
    "participation=flexible appeal=warmup strategy=fedumf": "participation=flexible cannot be combined with idle",
    "strategy=fedumf strategy/client=fedala": "strategy/server=fedumf counts what idle clients process before",
    "participation=power_of_choice secure_sum=fixed_point": "secure_sum=fixed_point with participation=power_of_choice"
    ", which may depend on single clients' losses: the server learns sums only; allowed: participation=everyone, ",
    "strategy=maxfl appeal=none": "strategy/client=maxfl needs every client's threshold; choose appeal=warmup",
    "strategy=mwfed appeal=none": "strategy/client=mwfed needs every client's threshold; choose appeal=warmup",
    "strategy=centralized appeal=warmup": "population.pooled=true: no client is left that could have a threshold",
    "strategy=centralized attack=gaussian": "attack.share=0.1: with population.pooled=true no client sends anything",
    "strategy=solo evaluation.tuning_steps=2 population.test_share=0.4": "evaluation.tuning_steps=2: strategy/client="
    "solo has no global model that clients could tune; allowed: 0",
    "population.test_share=1": "population.test_share=1: allowed: a finite number, at least 0 and below 1",
    "population.unseen_clients=-1": "population.unseen_clients=-1: allowed: an integer, at least 0",
    "attack=sign_flip attack.scale=0": "attack.scale=0: allowed: a finite number, above 0",
    "strategy=fedumf strategy.server.alpha=1.5": "strategy.server.alpha=1.5: allowed: a finite number, at least 0 and",
    "hardware.threads=99999": "hardware.threads=99999: allowed: an integer, at least 1 and at most 1024; or null",
    "attack.share=0.5": "attack.share=0.5 with attack=none: allowed: 0, or another attack, such as attack=gaussian",
    "rounds=1e2": "rounds=100.0: allowed: an integer, at least 1; an integer has no point and no exponent: 100",
    "rounds='5'": "rounds=5: allowed: an integer, at least 1; '5' in quotes is a string",
    "targets='[0.9]'": "targets=[0.9]: allowed: a list, each item either a finite number, above 0 and at most 1, or a "
    "string; '[0.9]' in quotes is a string",
    "data_dir='/data/caf\udce9'": r"data_dir=/data/caf\udce9: is not UTF-8; allowed: strings and paths in UTF-8",
    "name=2024": "name=2024: allowed: a string; in quotes it is one: 'name=\"2024\"'",
    "name=true": "name=true: allowed: a string; in quotes it is one: 'name=\"true\"'",
    "partition.beta=[0.1,1.0]": "partition.beta=[0.1,1.0]: allowed: a finite number, above 0 and at most 1e+300; a "
    "sweep over several values has no brackets: partition.beta=0.1,1.0",
    "seed=0..3": "seed=0..3: allowed: an integer, at least 0; a sweep over 0 to 3: -m 'seed=range(0,4)'",
    "partition.seed=-4": "partition.seed=-4: allowed: an integer, at least 0; or null",
    "strategy=ifca population.pooled=true": "population.pooled=true leaves one client, and a strategy with clusters",
    "strategy=ifca strategy/client=scaffold strategy/server=scaffold": "strategy/server=scaffold "
    "maintains the states of a model's clients, which change with strategy/clustering=ifca; choose another",
    "strategy=fedsoft strategy/server=feddyn": "strategy/server=feddyn ",
    "strategy=fedconcat_ib strategy/client=qffl strategy/server=qffl": "strategy/client=qffl does not send "
    "models, by which strategy/clustering=bias_movement tells clients apart",
    "strategy=fedconcat_id strategy/client=fednova strategy/server=fednova": "strategy/client=fednova does not",
    "strategy=fesem attack=ipm attack.share=0.2": "attack=ipm forges uploads after they have arrived, and "
    "strategy/clustering=fesem assigns clients by their uploads before; choose another attack",
    "strategy=fedconcat_id attack=alie attack.share=0.2": "attack=alie forges uploads after they have arrived, and "
    "strategy/clustering=random_inputs assigns",
    "evaluation.client_means=true attack=min_max attack.share=0.2": "evaluation.client_means=true with attack=min_max: "
    "the server averages something else than the models that clients have sent; allowed: false",
    "evaluation.client_means=true compression=sign compression.rule=vote compression.memory=none "
    "compression.skip=none": "evaluation.client_means=true with compression=sign: ",
    "evaluation.client_means=true privacy=user_level privacy.epsilon=8": "evaluation.client_means=true with privacy=us",
    "strategy=fedexp local.repair_nonfinite=true": "local.repair_nonfinite=true with strategy/server=fedexp, whose ",
    "strategy/server=fedaws strategy/server@strategy.server.base=flora strategy/client=sgd compression=topk "
    "compression.memory=client": "compression.memory=client with strategy/server=fedaws, whose A begins anew",
    "appeal=warmup appeal.steps=0": "appeal.steps=0: allowed: an integer, at least 1",
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.items(), ids=REFUSED)
def test_what_does_not_go_together(arguments, message):
    with pytest.raises(InputError) as refused:
        build_experiment(compose(arguments.split()).config)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_an_accuracy_by_its_name_is_a_target_of_adaptive_evaluation() -> None:
    chosen = ["evaluation.adaptive=true", "targets=[0.6,test/accuracy:0.7]"]
    assert build_experiment(compose(chosen)).targets == (0.6, "test/accuracy:0.7")


@dataclass(frozen=True)
class FirstTwo(Classification):
    """The score of a sample is whether its class has one of the two largest logits."""

    measures: ClassVar[tuple[str, ...]] = ("top2", "accuracy")

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.topk(2, -1).indices

    def scores(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (predictions == targets[:, None]).any(-1)

    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        first = results.predictions[:, 0] == results.targets
        return {"top2": results.mean_score, "accuracy": first.double().mean().item()}


@dataclass(frozen=True)
class Near(Classification):
    """The score of a sample is 1 / 2 if its prediction is a class beside its own."""

    def scores(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 0.5 ** (predictions - targets).abs()


@dataclass(frozen=True)
class Doubled(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 2 * super().loss(outputs, targets)


def test_adaptive_evaluation_counts_correct_predictions() -> None:
    """An estimate from other scores would be no accuracy."""
    experiment = build_experiment(compose(["model=mlp", "partition=iid"]))
    x, y = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 0])

    def adaptive(task: Classification) -> Experiment:
        evaluation = replace(experiment.evaluation, adaptive=True)
        dataset = InMemory.of((x, y), (x, y), classes=3, task=task)
        return replace(experiment, dataset=dataset, evaluation=evaluation, targets=(0.5,))

    for task in (FirstTwo(), Near()):
        with pytest.raises(InputError, match=rf"^evaluation\.adaptive=true counts .* {task.name}, scores .*: false$"):
            adaptive(task)
    adaptive(Doubled())


class Ramp(LocalTraining):
    def rate(self, round: int) -> float:
        return self.lr * (round + 1) / 10


class RampWithConstantRate(Ramp):
    def at_rate(self, lr: float) -> LocalTraining:
        return replace(super().at_rate(lr), lr=10 * lr)


@pytest.mark.parametrize("alone", ["evaluation.tuning_epochs=2 population.test_share=0.2", "appeal=warmup"])
def test_clients_that_train_alone_have_the_rate_that_is_set(alone: str) -> None:
    """Without an ``at_rate`` of its own the schedule would tune at lr / 10, its first round's rate."""

    def with_local(arguments: str, schedule: type[LocalTraining]) -> Experiment:
        experiment = build_experiment(compose(["local.lr=0.5", "rounds=10", *arguments.split()]))
        return replace(experiment, local=schedule(**vars(experiment.local)))

    with pytest.raises(InputError, match=r"^[a-z_.]+=(warmup|2): .* at 0\.05 instead of 0\.5, because Ramp"):
        with_local(alone, Ramp)
    with_local(alone, RampWithConstantRate)
    with_local("", Ramp)


@dataclass(frozen=True)
class Uneven(Classification):
    def weights(self, targets: torch.Tensor) -> torch.Tensor:
        return 1.0 + targets


def test_weights_of_samples_and_privacy_of_single_samples() -> None:
    """The sum of clipped gradients would not have the weights of the loss that is recorded."""
    private = build_experiment(compose(["model=mlp", "partition=iid", "privacy=sample_level", "privacy.epsilon=8"]))
    x, y = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 0])
    for task in (Classification(), Doubled()):
        replace(private, dataset=InMemory.of((x, y), (x, y), classes=3, task=task))
    with pytest.raises(InputError, match=r"^privacy=sample_level with the dataset's task, Uneven, which weights samp"):
        replace(private, dataset=InMemory.of((x, y), (x, y), classes=3, task=Uneven()))


def test_heads_that_stay_with_the_clients_are_not_changed_by_the_server():
    experiment = build_experiment(compose(["strategy=turbosvm", "strategy/client=fedper"]).config)
    with pytest.raises(InputError) as refused:
        Simulation(experiment)
    assert str(refused.value).startswith(
        "strategy/client=fedper keeps the head on the clients, and strategy/server=turbosvm changes the global one"
    )


def test_a_changed_experiment_is_checked() -> None:
    experiment = build_experiment(compose([]))
    scaffold = build_experiment(compose(["strategy=scaffold"])).strategy.client
    with pytest.raises(InputError, match=r"^stop_at_targets=true needs at least one target"):
        replace(experiment, stop_at_targets=True, targets=())
    with pytest.raises(InputError, match=r"^strategy/client=scaffold needs 'control' from the server"):
        replace(experiment, strategy=replace(experiment.strategy, client=scaffold))


@pytest.mark.parametrize("name", ["fedprox", "scaffold"])
def test_a_strategy_chosen_in_python_has_the_folder_of_the_command(name: str) -> None:
    chosen = replace(build_experiment(compose([])), strategy=option("strategy", name))
    assert chosen.folder == build_experiment(compose([f"strategy={name}"])).folder
    assert chosen.record.strategy == name


def test_a_configuration_of_omegaconf_serves_as_well() -> None:
    composed = compose(["model.hidden=[8,4]", "targets=[0.5]"])
    experiment = build_experiment(OmegaConf.create(composed.config))
    assert experiment == build_experiment(composed)
    assert experiment.record.config == composed.config
    assert (experiment.model.hidden, experiment.targets) == ((8, 4), (0.5,))


def test_a_title_names_the_sides_that_the_command_chooses() -> None:
    chosen = ["strategy=turbosvm", "strategy/client=fedprox", "seed=2"]
    assert build_experiment(compose(chosen)).record.title == "turbosvm, client=fedprox · digits · seed 2"
