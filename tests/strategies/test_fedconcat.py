"""FedConcat: its limits, a naive one on ordinary modules, the concatenated network, costs, killed in every stage."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.augmentation import Augmentation
from fedrun.data.tasks.classification import Classification
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.participation.base import select
from fedrun.models.parallel_encoders import ParallelEncoders
from fedrun.runs import session
from fedrun.runs.run import run
from fedrun.runs.saved_model import save_model
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.server import Senders
from fedrun.system.errors import InputError
from fedrun.system.randomness import address, generator

from ..conftest import first_executor, small_images
from ..helpers.fedconcat_models import fedconcat, logits
from ..helpers.interrupted_runs import Interrupts, rows
from ..helpers.naive_averaging import NaiveClients, weighted_mean
from ..helpers.small_networks import NETWORKS, advanced, data_of, mlp, network_of
from ..helpers.strategies import turbosvm

# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_one_cluster_is_fedavg(make_experiment, network, executor):
    experiment = make_experiment(network=NETWORKS[network], clients_per_round=4, hardware={"executor": executor})
    expected = advanced(Simulation(experiment), 3)
    state = advanced(Simulation(replace(experiment, strategy=fedconcat(clusters=1))), 3)
    assert len(state.models) == 1
    assert torch.equal(state.server.model, expected.server.model)
    reported = 6 * 3  # label distributions
    costs = expected.totals
    assert state.totals == replace(costs, params_up=costs.params_up + reported, bytes_up=costs.bytes_up + 4 * reported)


@pytest.mark.parametrize("clustering", ["random_inputs", "bias_movement"])
@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_one_inferred_cluster_is_fedavg(make_experiment, clustering, executor):
    experiment = make_experiment(network=mlp, clients_per_round=6, hardware={"executor": executor})
    strategy = fedconcat(clustering, clusters=1)
    states = [advanced(Simulation(replace(experiment, strategy=one)), 3) for one in (experiment.strategy, strategy)]
    assert torch.equal(states[0].server.model, states[1].server.model)
    assert states[0].totals == states[1].totals


@pytest.mark.parametrize("clustering", ["label_distributions", "random_inputs"])
def test_a_cluster_of_one_is_its_client_alone(make_experiment, clustering):
    experiment = make_experiment(network=mlp, clients_per_round=6)
    solo = build_experiment(compose(["strategy=solo"]).config).strategy
    alone = advanced(Simulation(replace(experiment, strategy=solo)), 3)
    state = advanced(Simulation(replace(experiment, strategy=fedconcat(clustering, clusters=6))), 3)
    clusters = state.membership.argmax(1).tolist()
    assert sorted(clusters) == list(range(6))
    for client, cluster in enumerate(clusters):
        assert torch.equal(state.models[cluster].model, alone.client_states.held[client]["private"])


def test_everybody_takes_part_in_the_round_that_infers(make_experiment):
    experiment = make_experiment(network=mlp, clients_per_round=2, strategy=fedconcat("random_inputs", clusters=3))
    simulation = Simulation(experiment)
    first = simulation.initial()
    assert len(simulation.uploads(first).clients) == 6
    second, _ = simulation.advance(first)
    assert second.totals.client_samples == sum((3, 12, 8, 5, 20, 12))
    assert len(simulation.uploads(second).clients) == 2
    third, _ = simulation.advance(second)
    cohort = select(0, 1, 6, 2)
    trained = {int(second.membership[client].argmax()) for client in cohort}
    for number in range(3):  # a cluster without participants keeps its model
        same = torch.equal(second.models[number].model, third.models[number].model)
        assert same == (number not in trained)


def test_progress_is_out_of_those_who_take_part(make_experiment):
    """Two of six clients per round; everybody in the round that infers, and all six in the rounds of the classifier."""
    strategy = fedconcat("random_inputs", rounds=1, clusters=3)
    strategy = replace(strategy, post_training=replace(strategy.post_training, clients_per_round=1.0))
    simulation = Simulation(make_experiment(network=mlp, rounds=3, clients_per_round=2, strategy=strategy))
    told: list[list[tuple[int, int]]] = []
    state = simulation.initial()
    for _ in range(3):
        told.append([])
        state, _ = simulation.advance(state, lambda done, cohort: told[-1].append((done, cohort)))
    assert [(len(each) > 0, each[-1]) for each in told] == [(True, (6, 6)), (True, (2, 2)), (True, (6, 6))]


def test_client_states_after_the_round_that_infers(make_experiment):
    scaffold = {group: option(f"strategy/{group}", "scaffold") for group in ("client", "server")}
    strategy = replace(fedconcat("random_inputs", clusters=3), **scaffold)
    experiment = make_experiment(network=mlp, strategy=strategy, clients_per_round=6)
    state = advanced(simulation := Simulation(experiment), 1)
    clusters = state.membership.argmax(1)
    for cluster in range(3):  # a cluster's control variate is the mean of its clients'
        own = [
            state.client_states.held[client]["control"] for client in (clusters == cluster).nonzero().flatten().tolist()
        ]
        expected = sum(own) / len(own)
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(state.models[cluster].slots["control"], expected, rtol=1e-5, atol=1e-6)
    assert len(simulation.initial().client_states.held) == 0


def test_clients_of_the_last_stage_have_no_client_state(make_experiment):
    """Not even zeros under the names that the first stage's client strategy has."""
    strategy = replace(fedconcat("random_inputs", rounds=2, clusters=3), client=option("strategy/client", "moon"))
    experiment = make_experiment(network=mlp, strategy=strategy, clients_per_round=6, rounds=4)
    simulation = Simulation(experiment)
    runners = [simulation.round_runner(advanced(simulation, rounds)) for rounds in (1, 4)]
    names = [tuple(runner.executor.context.state_lengths) for runner in runners]
    assert names == [("previous",), ()]


# --- a naive FedConcat -----------------------------------------------------------------------------------------------


@dataclass
class NaiveFedConcat:
    """Clusters of modules, then ordinary training of one wide linear layer on their encoders' outputs."""

    networks: list[nn.Module]
    clusters: Sequence[int]
    data: list[tuple[torch.Tensor, torch.Tensor]]
    clients: NaiveClients
    seed: int
    encoders_train: bool = False

    def encoder_round(self, index: int, cohort: list[int]) -> None:
        for cluster, network in enumerate(self.networks):
            members = [client for client in cohort if self.clusters[client] == cluster]
            trained = []
            for client in members:
                torch.manual_seed(address(self.seed, "forward", index, client))  # for dropout
                order = generator(self.seed, "batches", index, client)
                trained.append(self.clients.train(network, *self.data[client], order, index)[0])
            if trained:
                sizes = [float(len(self.data[client][1])) for client in members]
                network.load_state_dict(weighted_mean(trained, sizes), strict=False)

    def features(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return torch.cat([network.eval().encoder(inputs) for network in self.networks], 1)

    def features_in_training(self, inputs: torch.Tensor) -> torch.Tensor:
        """Of encoders in training mode, whose running statistics are put back afterwards."""
        parts = []
        for network in self.networks:
            before = copy.deepcopy(network.state_dict())
            with torch.no_grad():
                parts.append(network.train().encoder(inputs))
            network.load_state_dict(before)
        return torch.cat(parts, 1)

    def begin(self) -> None:
        """The wide head: the clusters' heads side by side, the sum of their biases."""
        heads = [network.head for network in self.networks]
        self.head = nn.Linear(sum(head.in_features for head in heads), heads[0].out_features)
        with torch.no_grad():
            self.head.weight.copy_(torch.cat([head.weight for head in heads], 1))
            self.head.bias.copy_(sum(head.bias for head in heads))

    def classifier_round(self, index: int, cohort: list[int], steps: int) -> None:
        trained = []
        features = self.features_in_training if self.encoders_train else self.features
        for client in cohort:
            torch.manual_seed(address(self.seed, "forward", index, client))
            head, (inputs, labels) = copy.deepcopy(self.head), self.data[client]
            order = torch.randperm(len(labels), generator=generator(self.seed, "batches", index, client))
            optimizer = torch.optim.SGD(head.parameters(), lr=self.clients.lr, momentum=self.clients.momentum)
            for batch in order.split(self.clients.batch_size)[:steps]:
                optimizer.zero_grad()
                nn.functional.cross_entropy(head(features(inputs[batch])), labels[batch]).backward()
                optimizer.step()
            trained.append(head)
        self.head.load_state_dict(weighted_mean(trained, [1.0] * len(cohort)))


def dropout(spec):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


@pytest.mark.parametrize("build", [mlp, NETWORKS["batch_norm"], dropout])
@pytest.mark.parametrize(
    ("features", "mode", "executor"),
    [
        ("cached", "eval", "in_process"),
        ("recomputed", "eval", "in_process"),
        ("auto", "train", "in_process"),
        ("recomputed", "train", "vectorized"),
    ],
)
def test_two_encoder_and_two_classifier_rounds(make_experiment, build, features, mode, executor):
    strategy = fedconcat(rounds=2, initial="clusters", clusters=3)
    strategy = replace(strategy, post_training=replace(strategy.post_training, features=features, encoder_mode=mode))
    local = {"momentum": 0.9, "lr": 0.05}
    experiment = make_experiment(
        network=build,
        strategy=strategy,
        clients_per_round=4,
        rounds=4,
        local=local,
        hardware={"executor": executor},
    )
    simulation = Simulation(experiment)
    state = simulation.initial()
    naive = NaiveFedConcat(
        [network_of(simulation, build) for _ in range(3)],
        state.membership.argmax(1).tolist(),
        data_of(simulation),
        NaiveClients(**local),
        0,
        encoders_train=mode == "train",
    )
    for index in range(4):
        state, _ = simulation.advance(state)
        cohort = select(0, index, 6, 4).tolist()
        if index < 2:
            naive.encoder_round(index, cohort)
        else:
            if index == 2:
                naive.begin()
            naive.classifier_round(index, cohort, 3)
    for model, own in zip(state.finished[0], naive.networks, strict=True):
        for name, view in simulation.network.layout.views(model).items():
            torch.testing.assert_close(view, own.state_dict()[name], rtol=1e-5, atol=1e-6)
    head = simulation.phase(state).network.layout.views(state.server.model)
    torch.testing.assert_close(head["head.weight"], naive.head.weight.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(head["head.bias"], naive.head.bias.detach(), rtol=1e-5, atol=1e-6)
    inputs = simulation.dataset.inputs[60:].float() / 255
    predictions = naive.head(naive.features(inputs)).argmax(1)  # tests are made in evaluation mode
    expected = (predictions == simulation.dataset.targets[60:]).double().mean().item()
    assert simulation.test(state)["test/accuracy"] == pytest.approx(expected)


def test_encoders_in_training_mode_are_served_in_process(make_experiment, caplog):
    strategy = fedconcat(rounds=1, clusters=2)
    strategy = replace(strategy, post_training=replace(strategy.post_training, encoder_mode="train"))
    simulation = Simulation(
        make_experiment(network=mlp, strategy=strategy, rounds=2, hardware={"executor": "vectorized"})
    )
    advanced(simulation, 2)
    assert "executor=vectorized does not support a model with OutsideEncoder layers" in caplog.text


def test_at_most_three_steps_and_the_plain_mean(make_experiment):
    # batches of 4: clients with 3, 12, 8, 5, 20, 12 samples make 1, 3, 2, 2, 3, 3 steps on 3, 12, 8, 5, 12, 12 samples
    experiment = make_experiment(network=mlp, strategy=fedconcat(rounds=1, clusters=2), clients_per_round=6, rounds=2)
    before = advanced(simulation := Simulation(experiment), 1)
    state, _ = simulation.advance(before)
    assert state.totals.client_samples - before.totals.client_samples == 52
    server = simulation.phase(state).server
    senders = Senders(clients=torch.arange(2), samples=torch.tensor([1, 300]))
    assert server.weights(state.server, senders).tolist() == [1, 1]


# --- the concatenated network ----------------------------------------------------------------------------------------


def test_logits_are_the_sum_of_the_clusters(make_experiment, tmp_path):
    strategy = fedconcat(rounds=1, initial="clusters", clusters=3)
    simulation = Simulation(make_experiment(network=NETWORKS["batch_norm"], strategy=strategy, rounds=3))
    state = advanced(simulation, 2)
    handed = simulation.next_phase(state)
    save_model(simulation.phase(handed), handed, tmp_path / "model.safetensors")
    build = NETWORKS["batch_norm"]
    spec = simulation.dataset.spec
    each = []
    for server in state.models:
        network = build(spec)
        network.load_state_dict(simulation.network.layout.views(server.model), strict=False)
        each.append(network.eval())
    wide = nn.Sequential()
    wide.add_module("encoder", ParallelEncoders([build(spec).encoder for _ in range(3)]))
    wide.add_module("head", nn.Linear(36, 3))
    missing, unexpected = wide.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    inputs = simulation.dataset.inputs.float() / 255
    with torch.no_grad():
        summed = sum(network(inputs) for network in each)
        torch.testing.assert_close(wide.eval()(inputs), summed, rtol=0, atol=1e-5)
    before, now = simulation.test(state), simulation.test(handed)  # the ensemble, and the concatenated network
    assert now["test/loss"] == pytest.approx(before["test/loss"], abs=1e-5)
    expected = nn.functional.cross_entropy(summed[60:], simulation.dataset.targets[60:]).item()
    assert before["test/loss"] == pytest.approx(expected, abs=1e-5)


def test_two_heads_side_by_side_add_up():
    from fedrun.models.flat_network import Layout, Slot
    from fedrun.strategies.fedconcat import joined_heads

    layout = Layout((Slot("head.weight", (2, 1), 0, 2), Slot("head.bias", (2,), 2, 4)), 4, 4, slice(0, 4), 2, 1)
    # on the feature 1 of each encoder the clusters' logits are (1, 2) and (3, -1)
    weight, bias = joined_heads([torch.tensor([1.0, 1, 0, 1]), torch.tensor([2.0, 1, 1, -2])], layout)
    assert (weight @ torch.ones(2) + bias).tolist() == [4, 1]


def test_clients_that_test_alone_use_their_clusters_model(make_experiment):
    population = replace(build_experiment(compose().config).population, test_share=0.5)
    experiment = make_experiment(
        network=mlp, strategy=fedconcat(clusters=3), clients_per_round=6, population=population, sizes=[10] * 6
    )
    simulation = Simulation(experiment)
    state = advanced(simulation, 2)
    accuracies = []
    for client in range(6):
        own = simulation.federation.client_test[client]
        network = mlp(simulation.dataset.spec)
        network.load_state_dict(
            simulation.network.layout.views(state.models[int(state.membership[client].argmax())].model)
        )
        predicted = network(simulation.dataset.inputs[own].float() / 255).argmax(1)
        accuracies.append((predicted == simulation.dataset.targets[own]).double().mean().item())
    measured = simulation.test(state)
    assert measured["clients/accuracy_mean"] == pytest.approx(sum(accuracies) / 6)
    assert measured["test/accuracy"] == pytest.approx(sum(accuracies) / 6)  # five test samples each


@pytest.mark.parametrize("clustering", ["label_distributions", "random_inputs"])
def test_all_stages_are_tested_on_the_same_samples(make_experiment, clustering):
    """Clients that test on their own samples do so beside the common test, whose samples differ from theirs."""
    population = replace(build_experiment(compose().config).population, test_share=0.5)
    experiment = make_experiment(
        network=mlp,
        strategy=fedconcat(clustering, clusters=2, rounds=2, initial="clusters"),
        clients_per_round=6,
        population=population,
        sizes=[10] * 6,
        rounds=4,
    )
    simulation = Simulation(experiment)
    test = simulation.federation.test.samples
    assert not torch.isin(test, simulation.federation.client_test.samples).any()
    state = simulation.initial()
    for number in range(5):
        if number:
            state, _ = simulation.advance(state)
        right = (logits(simulation, state, test).argmax(1) == simulation.dataset.targets[test]).double().mean().item()
        assert simulation.test(state)["test/accuracy"] == pytest.approx(right), number


# --- costs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clustering", "reported"), [("label_distributions", 3), ("random_inputs", 0)])
def test_costs_follow_the_paper(make_experiment, clustering, reported):
    """N (2 S T_e + K (S − s) + 2 s_K T_c), and C numbers once from every client that reports its labels.

    The wide classifier has s_K = K s − (K − 1) C numbers, for its K biases are summed up to one; the paper writes K s.
    """
    strategy = fedconcat(clustering, rounds=3, clusters=2)
    state = advanced(Simulation(make_experiment(network=mlp, strategy=strategy, clients_per_round=6, rounds=5)), 5)
    size, head, wide = 16 * 6 + 6 + 6 * 3 + 3, 6 * 3 + 3, 2 * 6 * 3 + 3
    assert state.totals.params_up == 6 * (2 * size + 3 * wide + reported)
    assert state.totals.params_down == 6 * (2 * size + 2 * (size - head) + 3 * wide)
    assert state.totals.forward_samples == 2 * 60  # two encoders on every training sample, once


def test_features_that_are_computed_in_every_batch_count_in_every_batch(make_experiment):
    stage = {"features": "recomputed", "steps": 2}
    strategy = fedconcat(rounds=3, clusters=2)
    strategy = replace(strategy, post_training=replace(strategy.post_training, **stage))
    simulation = Simulation(make_experiment(network=mlp, strategy=strategy, clients_per_round=6, rounds=5))
    before, state = advanced(simulation, 2), advanced(simulation, 5)
    assert before.totals.forward_samples == 0
    processed = state.totals.client_samples - before.totals.client_samples
    assert processed == 3 * sum(min(size, 8) for size in simulation.federation.train.sizes.tolist())  # batches of 4
    assert state.totals.forward_samples == 2 * processed


# --- kill and resume -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "strategy",
    [
        ("strategy=fedconcat", "strategy.clustering.balanced=true"),
        ("strategy=fedconcat_id", "strategy.clustering.inputs=50", "strategy.clustering.by=labels"),
        ("strategy=fedconcat", "strategy.post_training.encoder_mode=train", "model.dropout=0.5"),
        ("strategy=fesem", "strategy/post_training=classifier", "hardware.client_memory_gb=0.0"),
    ],
)
def test_killed_in_every_stage(strategy, round, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two encoder rounds, two classifier rounds; ended before the first, between any two, and within both stages."""
    monkeypatch.setattr(session, "plot_labels", lambda _, path: path.write_bytes(b""))
    monkeypatch.setattr(session, "plot_curves", lambda _, path, __: path.write_bytes(b""))
    setting = ("rounds=4", "strategy.post_training.rounds=2", "strategy.clustering.clusters=3", "partition.clients=6")
    small = ("model.hidden=[8]", "tracking=none", "evaluation.train_clients=true", "hardware.threads=1")
    whole, parted = (
        build_experiment(compose([*strategy, *setting, *small, f"output_dir={tmp_path / name}"]))
        for name in ("whole", "parted")
    )
    run(whole)
    with pytest.raises(KeyboardInterrupt):
        run(parted, [Interrupts(round)])
    run(parted)
    assert rows(parted.folder) == rows(whole.folder)
    for name in ("model.safetensors", "clients.parquet"):
        assert (parted.folder / name).read_bytes() == (whole.folder / name).read_bytes()


# --- inferred clusters -----------------------------------------------------------------------------------------------


def test_random_inputs_find_the_clusters():
    """Clients whose labels are those of one of five disjoint pairs: all are told apart."""
    setting = ("partition=clusters", "local.epochs=20", "local.lr=0.1", "hardware.threads=1", "strategy=fedconcat_id")
    simulation = Simulation(build_experiment(compose(setting).config))
    state, _ = simulation.advance(simulation.initial())
    truth = option("strategy/clustering", "label_distributions", clusters=5).before(first_executor(simulation).context)
    together = [(m @ m.T) > 0 for m in (state.membership, truth)]
    assert torch.equal(*together)


def test_refused_before_the_first_round(make_experiment):
    strategy = fedconcat(rounds=1, clusters=2)
    crowd = replace(strategy, post_training=replace(strategy.post_training, clients_per_round=7))
    with pytest.raises(InputError, match=r"post_training.clients_per_round=7: the federation has 6 clients"):
        Simulation(make_experiment(network=mlp, strategy=crowd))
    with pytest.raises(InputError, match=r"clusters=7: there are 6 clients"):
        Simulation(make_experiment(network=mlp, strategy=fedconcat("random_inputs", clusters=7))).initial()


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("strategy=fedconcat", "rounds=20", "strategy.post_training.rounds=20"), "allowed: 1 to 19, or a share"),
        (("strategy=fedconcat", "strategy/client=feddyn", "strategy/server=feddyn"), "is incompatible with clusters"),
        (("strategy=ifca", "strategy/client=solo", "strategy/server=solo"), "is incompatible with clusters"),
        (("strategy=ifca", "strategy/server=fedumf"), "is incompatible with clusters"),
        (("strategy=ifca", "strategy/client=fedsoft"), "needs 'centres' from the server"),
        (("strategy=fedconcat", "appeal=warmup"), "choose appeal=none"),
        (
            (
                "strategy=fedconcat",
                *(f"strategy.post_training.{key}" for key in ("encoder_mode=train", "features=cached")),
            ),
            r"features=cached: with strategy.post_training.encoder_mode=train .* allowed: recomputed, auto",
        ),
        (("strategy=ifca", "population.test_share=0.2", "evaluation.tuning_steps=3"), "needs one global model"),
    ],
)
def test_what_does_not_go_together(overrides, message):
    with pytest.raises(InputError, match=message):
        build_experiment(compose(overrides).config)


@dataclass(frozen=True)
class Doubled(Classification):
    """Twice the cross-entropy."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 2 * super().loss(outputs, targets)


@pytest.mark.parametrize("features", ["cached", "recomputed"])
def test_the_classifier_is_trained_for_the_datasets_task(make_experiment, features):
    """A step with twice the loss at half the rate is the same step; without momentum also several."""
    data, strategy = small_images(60, 30), fedconcat(rounds=1, clusters=2)
    strategy = replace(strategy, post_training=replace(strategy.post_training, features=features))
    doubled = replace(data, spec=replace(data.spec, task=Doubled()))
    after, tests = [], []
    for dataset, lr in ((data, 0.1), (doubled, 0.05)):
        experiment = make_experiment(dataset=dataset, network=mlp, strategy=strategy, rounds=2, local={"lr": lr})
        state = advanced(simulation := Simulation(experiment), 2)
        after.append(state.server.model)
        tests.append(simulation.test(state)["test/loss"])
    torch.testing.assert_close(*after)
    assert tests[1] == pytest.approx(2 * tests[0], rel=1e-5)


def test_the_classifiers_own_rate_and_decay(make_experiment):
    strategy = fedconcat(rounds=2, clusters=2)
    stage = replace(strategy.post_training, lr=0.2, weight_decay=0.3)
    experiment = make_experiment(
        network=mlp,
        strategy=replace(strategy, post_training=stage),
        rounds=4,
        clients_per_round=6,
        local={"lr": 0.1, "lr_decay": 0.5, "weight_decay": 0.01},
    )
    simulation = Simulation(experiment)
    state = advanced(simulation, 3)
    local = simulation.phase(state).local
    assert (local.weight_decay, local.rate(2), local.rate(3)) == (0.3, 0.05, 0.025)


@pytest.mark.parametrize(
    ("share", "rounds", "last"), [(0.35, 5, 2), (0.3, 5, 2), (0.2, 5, 1), (0.9, 5, 4), (0.01, 5, 1), (0.5, 1, 1)]
)
def test_the_share_of_rounds_of_the_last_stage(share, rounds, last):
    # 1.75 and 1.5 are rounded to 2, 4.5 would leave the encoders half a round
    assert option("strategy/post_training", "classifier", rounds=share).last_rounds(rounds) == last


def test_a_schedule_ends_with_the_clusters_rounds(make_experiment):
    # two encoder rounds of four: C_t = (t + 1) / 2
    strategy = fedconcat(rounds=2, clusters=1)
    turbo = turbosvm(schedule="increasing", schedule_rounds=None)
    simulation = Simulation(
        make_experiment(network=mlp, strategy=replace(strategy, server=turbo), rounds=4, clients_per_round=6)
    )
    state, penalties = simulation.initial(), []
    for _ in range(2):
        state, metrics = simulation.advance(state)
        penalties.append(metrics["server/svm_penalty"])
    assert penalties == [0.5, 1.0]


@pytest.mark.parametrize(("features", "augmented"), [("cached", False), ("recomputed", True), ("auto", True)])
def test_cached_features_are_not_augmented(make_experiment, features, augmented):
    dataset = replace(
        small_images(60, 30), augmentation=Augmentation(pad=1, crop=1.0, flip=0.5, rotation=0.0, fill="reflect")
    )
    strategy = fedconcat(rounds=1, clusters=2)
    strategy = replace(strategy, post_training=replace(strategy.post_training, features=features))
    simulation = Simulation(
        make_experiment(network=mlp, dataset=dataset, strategy=strategy, rounds=2, clients_per_round=6)
    )
    state = advanced(simulation, 2)
    assert (simulation.phase(state).federation.dataset.augmentation is not None) == augmented


@dataclass(frozen=True)
class RefusesWhite:
    """The encoding of small images; a sample that is all white must not be read."""

    def __call__(self, stored: torch.Tensor) -> torch.Tensor:
        assert not (stored == 255).flatten(-3).all(-1).any()
        return stored.float() / 255


@pytest.mark.parametrize(("of", "share"), [("samples", 0.25), ("clients", 0.2)])
def test_cached_features_leave_test_samples_unread(make_experiment, of, share):
    """With validation samples, the test split's 30 samples (all white here) are never read, and the others are."""
    dataset = small_images(60, 30)
    inputs = dataset.inputs.clone()
    inputs[60:] = 255
    dataset = replace(dataset, inputs=inputs, encoding=RefusesWhite())
    experiment = make_experiment(
        network=mlp, dataset=dataset, strategy=fedconcat(rounds=1, clusters=2), rounds=2, clients_per_round=2
    )
    held_out = replace(experiment.validation, share=share, of=of)
    simulation = Simulation(replace(experiment, validation=held_out))
    state = advanced(simulation, 2)
    features = simulation.phase(state).federation.dataset.inputs
    assert features[60:].count_nonzero() == 0 and features[:60].any(1).all()
    assert "validation/accuracy" in simulation.test(state)
