"""Who belongs where: worked numbers, and independent computations on small networks."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.data.federation import ClientIndices, Federation
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client_state import LAST, ClientStates
from fedrun.strategies.clustering.base import ClusteringRound
from fedrun.strategies.clustering.fedsoft import importance
from fedrun.strategies.clustering.label_clusters import evenly
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator

from ...conftest import first_executor
from ...helpers.small_networks import advanced, batch_norm, logistic


def without_bias(spec):
    return nn.Sequential(OrderedDict(encoder=nn.Flatten(), head=nn.Linear(16, spec.classes, bias=False)))


@pytest.fixture(scope="module")
def simulation(make_experiment) -> Simulation:
    return Simulation(make_experiment(network=logistic))


def work_of(simulation: Simulation) -> ExecutionContext:
    return first_executor(simulation).context


@pytest.fixture(scope="module")
def work(simulation) -> ExecutionContext:
    return work_of(simulation)


def network_of(simulation, vector):
    network = logistic(simulation.dataset.spec)
    network.load_state_dict(simulation.network.layout.views(vector))
    return network.eval()


def random_models(simulation, count: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(simulation.network.layout.size, generator=draw) for _ in range(count)]


def round_of(index, cohort, models, membership, client_states=None) -> ClusteringRound:
    """A round that is about to begin, with all clients at hand."""

    def query(clients, question):
        return torch.stack([question(client) for client in clients.tolist()])

    return ClusteringRound(index, cohort, models, membership, client_states or ClientStates(), query)


def test_label_distributions(work):
    reported = option("strategy/clustering", "label_distributions").reported(work)
    for client in range(len(work.clients)):
        labels = work.samples.targets[work.clients[client]].tolist()
        assert reported[client].tolist() == pytest.approx([labels.count(c) / len(labels) for c in range(3)])


def test_privacy_adds_laplace_noise(make_experiment):
    work = work_of(Simulation(make_experiment(network=logistic, sizes=[3] * 600)))
    plain, noisy, nearly = (
        option("strategy/clustering", "label_distributions", epsilon=epsilon) for epsilon in (None, 0.5, 1e9)
    )
    noise = noisy.reported(work) - plain.reported(work)
    assert noise.abs().mean().item() == pytest.approx(2.0, rel=0.08)  # 1/ε; 1 800 draws have a deviation of 2.4 %
    assert abs(noise.mean().item()) < 0.2
    assert torch.equal(nearly.before(work), plain.before(work))


def test_the_mean_softmax_of_random_inputs(simulation, work):
    (model,) = random_models(simulation, 1)
    clustering = option("strategy/clustering", "random_inputs", inputs=700)
    found = clustering.distribution(work, model, model, 1)
    draw = generator(work.seed, "clusters/inputs")
    noise = torch.cat([torch.rand(500, 1, 4, 4, generator=draw), torch.rand(200, 1, 4, 4, generator=draw)])
    expected = torch.softmax(network_of(simulation, model)(noise), 1).mean(0)
    torch.testing.assert_close(found.float(), expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [("published", (0.75, 0.25)), ("softmax_bias", (0.5125, 0.4875))],
)
def test_one_step_moves_the_bias_by_the_labels(make_experiment, formula, expected):
    # zero features, labels 3:1, η = 0.1, b_0 = 0: the bias becomes (0.025, −0.025); softmax (0.5125, 0.4875)
    dataset = make_experiment(sizes=[4]).dataset.load()
    dataset = replace(
        dataset,
        spec=replace(dataset.spec, classes=2),
        inputs=torch.zeros_like(dataset.inputs),
        targets=torch.tensor([0, 0, 0, 1] + [0] * 30),
        class_names=("a", "b"),
    )
    experiment = make_experiment(network=logistic, sizes=[4], dataset=dataset, clients_per_round=1)
    simulation = Simulation(experiment)
    state = simulation.initial()
    state.server.model[-2:] = 0
    after, _ = simulation.advance(state)
    assert after.server.model[-2:].tolist() == pytest.approx([0.025, -0.025])
    clustering = option("strategy/clustering", "bias_movement", formula=formula)
    found = clustering.distribution(work_of(simulation), state.server.model, after.server.model, 1)
    assert found.tolist() == pytest.approx(expected, abs=1e-4)


def test_momentum_is_taken_out_of_the_movement(simulation, work):
    before, after = random_models(simulation, 2)
    clustering = option("strategy/clustering", "bias_movement")
    heavy = replace(work, local=replace(work.local, momentum=0.75))
    plain, scaled = (clustering.distribution(p, before, after, 5) for p in (work, heavy))
    start = torch.softmax(before[-3:].double(), 0)
    torch.testing.assert_close(scaled - start, (plain - start) / 4)


@pytest.mark.parametrize(
    ("counts", "labels"),
    [((12, 0, 0), {0}), ((11, 1, 0), {0}), ((10, 2, 0), {0, 1}), ((8, 2, 2), {0, 1, 2}), ((0, 7, 5), {1, 2})],
)
def test_labels_that_make_up_a_sixth_of_three(make_experiment, counts, labels):
    dataset = make_experiment(sizes=[12]).dataset.load()
    targets = torch.tensor([0] * counts[0] + [1] * counts[1] + [2] * counts[2] + [0] * 30)
    simulation = Simulation(make_experiment(network=logistic, sizes=[12], dataset=replace(dataset, targets=targets)))
    clustering = option("strategy/clustering", "label_distributions", by="labels", clusters=1)
    assert {c for c in range(3) if clustering.labels(clustering.reported(work_of(simulation)))[0, c]} == labels


def test_by_labels_clients_with_the_same_labels_are_alike(make_experiment):
    # labels 0 and 1 in shares of 2:10 to 10:2, and 1 and 2, which by shares are nearer to the first of these
    dataset = make_experiment(sizes=[12] * 6).dataset.load()
    targets = dataset.targets.clone()
    for client, first in enumerate([2, 4, 6, 8, 10, 0]):
        own = torch.arange(client * 12, client * 12 + 12)
        targets[own * 7 % 72] = torch.tensor([0] * first + [1] * (12 - first) if first else [1] * 6 + [2] * 6)
    dataset = replace(dataset, targets=targets)
    work = work_of(Simulation(make_experiment(network=logistic, sizes=[12] * 6, dataset=dataset)))
    found = {
        by: option("strategy/clustering", "label_distributions", by=by, clusters=2).before(work)
        for by in ("labels", "shares")
    }
    together = {by: (each @ each.T > 0).tolist() for by, each in found.items()}
    assert together["labels"] == [[True] * 5 + [False]] * 5 + [[False] * 5 + [True]]
    assert together["shares"] != together["labels"]


def test_clients_of_which_nothing_is_known_are_even():
    has = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4])
    assert evenly(has).tolist() == [[0.5, 0, 0.5, 0], [0.25] * 4, [0.25] * 4]


def labels_told(clustering, work, before, models):
    """The labels that a clustering finds in clients' first models."""
    clustering = replace(clustering, by="labels")
    return clustering.labels(torch.stack([clustering.estimate(work, before, model, 1) for model in models]))


def test_labels_whose_bias_has_risen(simulation, work):
    before = random_models(simulation, 1)[0]
    moves = {(0.4, -0.1, -0.3): {0}, (0.3, 0.1, -0.4): {0, 1}, (float("nan"), float("nan"), -1.0): set()}
    after = [torch.cat([before[:-3] * 9, before[-3:] + torch.tensor(move)]) for move in moves]
    for formula in ("published", "softmax_bias"):
        found = labels_told(option("strategy/clustering", "bias_movement", formula=formula), work, before, after)
        assert [{c for c in range(3) if row[c]} for row in found] == list(moves.values())


@pytest.mark.parametrize("bias", [True, False])
def test_labels_whose_logits_for_random_inputs_the_head_has_raised(make_experiment, bias):
    def build(spec):
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU())
        return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes, bias=bias)))

    simulation = Simulation(make_experiment(network=build))
    before, *after = random_models(simulation, 6)
    clustering = option("strategy/clustering", "random_inputs", inputs=700)
    found = labels_told(clustering, work_of(simulation), before, after)
    draw = generator(0, "clusters/inputs")
    noise = torch.cat([torch.rand(500, 1, 4, 4, generator=draw), torch.rand(200, 1, 4, 4, generator=draw)])
    networks = [build(simulation.dataset.spec) for _ in range(6)]
    for network, model in zip(networks, [before, *after], strict=True):
        network.load_state_dict(simulation.network.layout.views(model))
    for row, network in zip(found, networks[1:], strict=True):
        embeddings = network.encoder(noise)
        risen = (network.head(embeddings) - networks[0].head(embeddings)).mean(0)
        assert row.tolist() == (risen > 0).tolist()
    assert 0 < found.sum() < 15


@pytest.mark.parametrize("name", ["random_inputs", "bias_movement"])
def test_inferred_labels_on_digits(default_experiment, name):
    """Ten clients with one label, ten with two in shares of 10:1, ten with two halves, five of Dirichlet(0.5)."""
    dataset = default_experiment.dataset.load()
    pools = {c: (dataset.targets[: dataset.train_size] == c).nonzero().flatten() for c in range(10)}
    shares = torch.zeros(35, 10, dtype=torch.float64)
    shares[torch.arange(30), torch.arange(30) % 10] = torch.tensor([1.0, 10 / 11, 0.5]).double().repeat_interleave(10)
    shares[torch.arange(10, 30), torch.arange(13, 33) % 10] += (
        torch.tensor([1 / 11, 0.5]).double().repeat_interleave(10)
    )
    draw = np.random.default_rng(0)
    shares[30:] = torch.from_numpy(draw.dirichlet([0.5] * 10, 5))
    counts = (shares * 110).round().long()
    parts = [np.concatenate([pools[c][: row[c]].numpy() for c in range(10)]) for row in counts]
    federation = Federation(
        dataset, ClientIndices.of(parts), ClientIndices.of([np.arange(dataset.train_size, len(dataset.targets))])
    )
    local = replace(default_experiment.local, lr=0.1, batch_size=16, epochs=5)
    in_order = replace(default_experiment.hardware, executor="in_process")
    simulation = Simulation(replace(default_experiment, local=local, hardware=in_order), federation=federation)
    state, clustering = simulation.initial(), option("strategy/clustering", name)
    task = CohortJob(torch.arange(35), 0, {MODEL: state.server.model}, state.client_states)
    executor = first_executor(simulation)
    models = [result.model.clone() for result in executor.client_results(task)]
    has = labels_told(clustering, executor.context, state.server.model, models)
    assert torch.equal(has[:30], counts[:30] > 0)
    mixed, found = counts[30:], has[30:]
    assert found[mixed >= 22].all()  # twice as frequent as on average
    assert not found[mixed <= 3].any()


def test_a_head_without_bias_says_nothing(make_experiment):
    work = work_of(Simulation(make_experiment(network=without_bias)))
    with pytest.raises(InputError, match="needs a model whose last layer has a bias"):
        option("strategy/clustering", "bias_movement").before(work)


def test_ifca_chooses_the_least_loss(simulation, work):
    models, cohort = random_models(simulation, 2), torch.tensor([4, 1, 0, 5])
    before = torch.zeros(6, 2, dtype=torch.float64)
    choice = option("strategy/clustering", "ifca", clusters=2).assign(work, round_of(0, cohort, models, before))
    for client in range(6):
        x, y = work.samples.gather(work.clients[client])
        losses = [
            nn.functional.cross_entropy(network_of(simulation, model)(x.float() / 255), y).item() for model in models
        ]
        expected = [0, 0] if client in (2, 3) else [1, 0] if losses[0] < losses[1] else [0, 1]
        assert choice.membership[client].tolist() == expected
    assert {tuple(row) for row in choice.membership[cohort].tolist()} == {(0, 1), (1, 0)}  # both are chosen
    assert choice.forward_passes.tolist() == [2, 2, 0, 0, 2, 2]
    assert not before.any()


def test_a_diverged_model_is_chosen_by_nobody(simulation, work):
    """Its logits overflow, so that its losses are NaN."""
    models, cohort = random_models(simulation, 2), torch.arange(6)
    models[0].fill_(torch.inf)
    first = round_of(0, cohort, models, torch.zeros(6, 2, dtype=torch.float64))
    assert option("strategy/clustering", "ifca", clusters=2).assign(work, first).membership.tolist() == [[0, 1]] * 6
    soft = option("strategy/clustering", "fedsoft", clusters=2).assign(work, first).membership
    assert soft.tolist() == [[1e-4, 1.0]] * 6


def test_ifcas_equal_models_are_chosen_by_chance(simulation, work):
    (model,) = random_models(simulation, 1)
    clustering = option("strategy/clustering", "ifca", clusters=2, same_init=True)
    empty, cohort = torch.zeros(6, 2, dtype=torch.float64), torch.arange(6)
    draws = [
        clustering.assign(replace(work, seed=seed), round_of(0, cohort, [model, model], empty)) for seed in range(40)
    ]
    assert all(draw.membership.sum(1).tolist() == [1] * 6 and draw.forward_passes is None for draw in draws)
    assert 0.35 < sum(draw.membership[:, 0].mean().item() for draw in draws) / len(draws) < 0.65  # 4.6 deviations
    models = random_models(simulation, 2)
    later = clustering.assign(work, round_of(1, cohort, models, empty))
    first = option("strategy/clustering", "ifca", clusters=2).assign(work, round_of(0, cohort, models, empty))
    assert later.membership.tolist() == first.membership.tolist()


def test_shares_of_votes():
    # votes (3, 1) of 4 and (4, 0) of 4
    assert importance(torch.tensor([[1.0, 2], [1, 2], [1, 2], [2, 1]]), 1e-4).tolist() == [0.75, 0.25]
    assert importance(torch.tensor([[1.0, 2]] * 4), 1e-4).tolist() == [1, 1e-4]


def test_fedsoft_votes_by_samples_every_second_round(simulation, work):
    models, cohort = random_models(simulation, 3), torch.tensor([4, 1])
    clustering = option("strategy/clustering", "fedsoft", clusters=3)
    before = torch.zeros(6, 3, dtype=torch.float64)
    before[1] = torch.tensor([0.5, 0.5, 0.5])
    even, odd = (clustering.assign(work, round_of(round, cohort, models, before)) for round in (2, 3))
    for client in (1, 4):
        x, y = work.samples.gather(work.clients[client])
        losses = [
            nn.functional.cross_entropy(network_of(simulation, m)(x.float() / 255), y, reduction="none") for m in models
        ]
        best = [min(range(3), key=lambda s, i=i: losses[s][i].item()) for i in range(len(y))]
        shares = [max(best.count(s) / len(y), 1e-4) for s in range(3)]
        assert even.membership[client].tolist() == pytest.approx(shares)
        if client == 4:
            assert odd.membership[client].tolist() == pytest.approx(shares)  # it had none
    assert odd.membership[1].tolist() == [0.5, 0.5, 0.5]
    assert [choice.forward_passes.tolist() for choice in (even, odd)] == [[0, 3, 0, 0, 3, 0], [0, 0, 0, 0, 3, 0]]


@pytest.mark.parametrize("server", ["fedacg", "fedexp"])
def test_one_centre_is_the_model_that_clients_receive(make_experiment, server):
    # FedSoft's pull to one centre is FedProx's pull to the received model; these servers evaluate another model
    mean, models = option("strategy/server", server), []
    soft = option("strategy", "fedsoft")
    clustered = replace(
        soft,
        client=replace(soft.client, strength=1.0),
        server=mean,
        clustering=replace(soft.clustering, clusters=1),
    )
    proximal = Strategy(client=option("strategy/client", "fedprox", mu=1.0), server=mean)
    for strategy in (clustered, proximal):
        simulation = Simulation(make_experiment(strategy=strategy, network=logistic))
        state = advanced(simulation, 3)
        models.append(state.server.model)
    torch.testing.assert_close(*models)


def test_fesem_joins_the_nearest_centre(work):
    # centres 0 and 10, last models 2 and 9
    models = [torch.tensor([0.0]), torch.tensor([10.0])]
    client_states = ClientStates({1: {LAST: torch.tensor([2.0])}, 4: {LAST: torch.tensor([9.0])}})
    clustering = option("strategy/clustering", "fesem", clusters=2)
    none = torch.zeros(6, 2, dtype=torch.float64)
    choice = clustering.assign(work, round_of(1, torch.tensor([4, 1]), models, none, client_states))
    assert choice.membership[[1, 4]].tolist() == [[1, 0], [0, 1]]
    everyone = clustering.assign(work, round_of(0, torch.arange(6), models, none, ClientStates())).membership
    assert everyone.sum(0).tolist() == [3, 3]  # newcomers are dealt out evenly


def test_fesem_fills_its_clusters_evenly_over_rounds(work):
    """Also if a round has fewer new clients than clusters."""
    models = [torch.zeros(1)] * 3
    clustering = option("strategy/clustering", "fesem", clusters=3)
    membership = torch.zeros(6, 3, dtype=torch.float64)
    for round, cohort in enumerate(([5], [0, 3], [1], [4, 2])):
        given = round_of(round, torch.tensor(cohort), models, membership, ClientStates())
        membership = clustering.assign(work, given).membership
    assert membership.sum(0).tolist() == [2, 2, 2]


def test_fesems_distances_count_buffers(make_experiment):
    # only a running variance tells the models apart: 0 or 10; the client's last one has 9
    work = work_of(Simulation(make_experiment(network=batch_norm)))
    models = [torch.zeros(work.network.layout.size) for _ in range(2)]
    models[1][-1] = 10
    last = torch.zeros(work.network.layout.size)
    last[-1] = 9
    client_states = ClientStates({2: {LAST: last}})
    clustering = option("strategy/clustering", "fesem", clusters=2)
    found = clustering.assign(
        work, round_of(3, torch.tensor([2]), models, torch.zeros(6, 2, dtype=torch.float64), client_states)
    )
    assert found.membership[2].tolist() == [0, 1]


def test_fesem_deals_anew_in_every_round(make_experiment):
    simulation = Simulation(make_experiment(network=logistic))
    work, models = work_of(simulation), random_models(simulation, 2)
    clustering, empty = option("strategy/clustering", "fesem", clusters=2), torch.zeros(6, 2, dtype=torch.float64)
    dealt = []
    for round in (0, 1):
        order = torch.randperm(6, generator=generator(0, "clusters/first", round))
        expected = torch.empty(6, dtype=torch.int64)
        expected[order] = torch.tensor([0, 1, 0, 1, 0, 1])
        dealt.append(
            clustering.assign(work, round_of(round, torch.arange(6), models, empty)).membership.argmax(1).tolist()
        )
        assert dealt[-1] == expected.tolist()
    assert dealt[0] != dealt[1]


def test_fedsofts_reshuffled_votes(make_experiment):
    simulation = Simulation(make_experiment(network=logistic))
    work, models = work_of(simulation), random_models(simulation, 2)
    clustering = option("strategy/clustering", "fedsoft", clusters=2, vote="reshuffled")
    for round in (0, 2):
        found = clustering.assign(
            work, round_of(round, torch.tensor([4]), models, torch.zeros(6, 2, dtype=torch.float64))
        )
        draw = generator(0, "clusters/vote", round, 4)
        each = [work.results(model, 4).losses[torch.randperm(20, generator=draw)] for model in models]
        votes = (each[0] <= each[1]).double().mean().item()
        assert found.membership[4].tolist() == pytest.approx([max(votes, 1e-4), max(1 - votes, 1e-4)])


def test_a_diverged_client_is_like_one_with_equal_shares(make_experiment):
    # of a client whose training diverged nothing is known: it is like one with equal shares, so that only 3 differ
    simulation = Simulation(make_experiment(network=logistic, sizes=(6, 6, 6, 6)))
    clustering = option("strategy/clustering", "random_inputs", clusters=4)
    third, nan = 1 / 3, float("nan")
    told = torch.tensor([[third] * 3, [nan] * 3, [1, 0, 0], [0, 1, 0]], dtype=torch.float64)
    found = clustering.infer(work_of(simulation), told)
    assert found.shape == (4, 3) and torch.equal(found[0], found[1])
