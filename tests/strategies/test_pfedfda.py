"""pFedFDA: worked numbers, heads against normal densities, and networks against naive rounds."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import multivariate_normal

from fedrun.config.build import option
from fedrun.experiment.participation.base import select
from fedrun.experiment.strategy import Strategy
from fedrun.models.flat_network import Layout, Slot
from fedrun.simulation.simulation import Simulation
from fedrun.strategies import pfedfda
from fedrun.strategies.pfedfda import FeatureStatistics, PFedFDA, global_statistics, smoothed_log_prior
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator

from ..helpers.small_networks import COHORT, data_of, mlp, network_of

SERVER = option("strategy/server", "pfedfda")


def client_strategy(covariance: str = "small") -> PFedFDA:
    return option("strategy/client", "pfedfda", covariance=covariance)


def statistics(means: list[list[float]], covariance: list[list[float]]) -> FeatureStatistics:
    return FeatureStatistics(torch.tensor(means).double(), torch.tensor(covariance).double())


EVEN = torch.tensor([0.5, 0.5]).double().log()


@pytest.mark.parametrize(
    ("beta", "weight", "bias", "posterior"),
    [
        (0.0, [0.0, 4.0], [-0.6931471806, -4.6931471806], 0.8807970780),
        (0.25, [0.4, 3.6], [-0.7431471806, -4.7431471806], 0.6899744811),
    ],
)
def test_the_head(monkeypatch, beta, weight, bias, posterior):
    """Global m = (0, 2), S = 0.5, local m = (1, 3), S = 1, equal shares of the classes; the second class at z = 1.5."""
    monkeypatch.setattr(pfedfda, "SHRINKAGE", 0.0)
    mixed = statistics([[0.0], [2.0]], [[0.5]]).mixed(
        statistics([[1.0], [3.0]], [[1.0]]), torch.tensor([beta, beta]).double()
    )
    own_weight, own_bias = mixed.head(EVEN)
    assert own_weight.flatten().tolist() == pytest.approx(weight)
    assert own_bias.tolist() == pytest.approx(bias)
    assert (1.5 * own_weight.flatten() + own_bias).softmax(0)[1].item() == pytest.approx(posterior)


def test_logits_are_log_posteriors():
    """Against scipy's normal densities in three dimensions, with unequal shares and the shrunk covariance."""
    draw = torch.Generator().manual_seed(0)
    means, root = torch.randn(4, 3, generator=draw).double(), torch.randn(3, 3, generator=draw).double()
    covariance, prior = root @ root.T, torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    weight, bias = FeatureStatistics(means, covariance).head(prior.log())
    shrunk = (1 - 1e-4) * covariance + 1e-4 * covariance.trace() / 3 * torch.eye(3)
    z = torch.randn(3, generator=draw).double()
    densities = [
        share * multivariate_normal(mean, shrunk).pdf(z) for share, mean in zip(prior.tolist(), means, strict=True)
    ]
    expected = [density / sum(densities) for density in densities]
    assert (weight @ z + bias).softmax(0).tolist() == pytest.approx(expected)


def test_local_statistics():
    """Class 0 has embeddings 1 and 3, class 1 has 5, class 2 none: means 2 and 5, a scatter of 2 over n - 1 = 2."""
    shared = statistics([[0.0], [0.0], [7.0]], [[1.0]])
    embeddings, labels = torch.tensor([[1.0], [5.0], [3.0]]).double(), torch.tensor([0, 1, 0])
    own = client_strategy().statistics(shared, embeddings, labels)
    assert own.means.flatten().tolist() == [2.0, 5.0, 7.0]
    assert own.covariance.item() == pytest.approx(1.0001)
    assert client_strategy("released").statistics(shared, embeddings, labels).covariance.item() == pytest.approx(2.0001)
    two = client_strategy("released").statistics(
        statistics([[0.0, 0.0]] * 2, [[1.0, 0.0], [0.0, 1.0]]), torch.zeros(3, 2).double(), torch.tensor([0, 1, 0])
    )
    assert two.covariance.flatten().tolist() == pytest.approx([1.0001, 0.0001, 0.0001, 1.0001])


def clouds(count: int, means: list[float], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings in one dimension with variance 1/4, as many of each class."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % len(means)
    return torch.tensor(means)[labels, None] + torch.randn(count, 1, generator=draw) / 2, labels


def held_out_entropy(client: PFedFDA, shared, embeddings, labels, prior, beta) -> float:
    """The cross-entropy of either half of the samples under the other half's statistics, by loops."""
    folds: list[list[int]] = [[], []]
    turn = 0
    for label in sorted(set(labels.tolist())):
        for number in [number for number, each in enumerate(labels.tolist()) if each == label]:
            folds[turn % 2].append(number)
            turn += 1
    total = 0.0
    for train, test in (folds, folds[::-1]):
        local = client.statistics(shared, embeddings[train], labels[train])
        weight, bias = shared.mixed(local, torch.tensor(beta).double()).head(prior)
        for number in test:
            logits = [float(weight[c] @ embeddings[number] + bias[c]) for c in range(len(bias))]
            total += math.log(sum(math.exp(each) for each in logits)) - logits[int(labels[number])]
    return total / len(labels)


@pytest.mark.parametrize(("means", "count"), [([0.0, 2.0], 40), ([1.0, 3.0], 40), ([1.0, 3.0], 6)])
def test_beta_has_the_least_entropy_of_held_out_halves(means, count):
    """No point of a grid is better, up to the tolerance of the search."""
    shared = statistics([[0.0], [2.0]], [[0.5]])
    embeddings, labels = clouds(count, means)
    arguments = (shared, embeddings.double(), labels, EVEN)
    beta = client_strategy().beta(*arguments).tolist()
    assert all(0 <= each <= 1 for each in beta)
    entropy = held_out_entropy(client_strategy(), *arguments, beta)
    grid = [held_out_entropy(client_strategy(), *arguments, (i / 10, j / 10)) for i in range(11) for j in range(11)]
    assert entropy <= min(grid) + 2e-3


def test_shifted_clients_use_their_own_means_and_others_the_global_ones():
    shared = statistics([[0.0], [2.0]], [[0.25]])
    embeddings, labels = clouds(400, [4.0, 6.0])
    assert client_strategy().beta(shared, embeddings.double(), labels, EVEN)[0].item() > 0.9
    assert client_strategy().beta(shared, embeddings[:3].double(), labels[:3], EVEN).tolist() == [0.0, 0.0]  # too few


def test_a_covariance_that_noise_has_spoilt():
    """The eigenvalues 3 and -1 of ((1, 2), (2, 1)) become 3 and 0: the matrix becomes ((1.5, 1.5), (1.5, 1.5))."""
    layout = Layout((Slot("head.weight", (1, 2), 0, 2),), trainable=2, size=2, head=slice(0, 2), classes=1, embedding=2)
    received = {pfedfda.MEANS: torch.zeros(2), pfedfda.COVARIANCE: torch.tensor([1.0, 2.0, 2.0, 1.0])}
    assert global_statistics(received, layout).covariance.flatten().tolist() == pytest.approx([1.5] * 4)


BETA = torch.tensor([0.3, 0.7]).double()


def naive_head(network, means, covariance, labels):
    """Fill in the head of a network from normal densities."""
    d = len(covariance)
    shrunk = (1 - 1e-4) * covariance + 1e-4 * covariance.trace() / d * torch.eye(d).double()
    inverse = torch.linalg.inv(shrunk)
    for label in range(len(means)):
        share = (int((labels == label).sum()) + 1e-4) / (len(labels) + 1e-4 * len(means))
        network.head.weight.data[label] = (inverse @ means[label]).float()
        network.head.bias.data[label] = float(math.log(share) - means[label] @ inverse @ means[label] / 2)


def naive_mixture(network, x, y, means, covariance):
    """The mixture of the given statistics with a client's own."""
    z = network.encoder(x).detach().double()
    local = torch.stack([z[y == c].mean(0) if (y == c).any() else means[c] for c in range(len(means))])
    scatter = sum(torch.outer(row - local[c], row - local[c]) for row, c in zip(z, y.tolist(), strict=True))
    spread = scatter / max(len(y) - 1, 1) + 1e-4 * torch.eye(len(covariance)).double()
    return 0.3 * local + 0.7 * means, 0.7 * spread + 0.3 * covariance


def test_networks(monkeypatch, make_experiment, default_experiment):
    """Three rounds: the encoder, the statistics, and the accuracy of all clients, also of those that never trained."""
    monkeypatch.setattr(PFedFDA, "beta", lambda *_: BETA)
    experiment = make_experiment(
        network=mlp,
        local={"epochs": 2, "lr": 0.01},
        strategy=Strategy(client=client_strategy(), server=SERVER),
        clients_per_round=COHORT,
        population=replace(default_experiment.population, test_share=0.4),
    )
    simulation = Simulation(experiment)
    network, data = network_of(simulation, mlp), data_of(simulation)
    state, layout = simulation.initial(), simulation.network.layout
    means, covariance = network.head.weight.detach().double(), torch.eye(layout.embedding).double()
    size = experiment.local.batch_size
    for index in range(3):
        cohort, sent = select(0, index, len(data), COHORT).tolist(), []
        for client in cohort:
            (x, y), own, order = data[client], copy.deepcopy(network), generator(0, "batches", index, client)
            naive_head(own, means, covariance, y)
            parameters = list(own.encoder.parameters())
            for _ in range(2):
                for batch in torch.randperm(len(y), generator=order).split(size):
                    loss = torch.nn.functional.cross_entropy(own(x[batch]), y[batch])
                    for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                        parameter.data -= 0.01 * slope
            sent.append((len(y), own.encoder.state_dict(), *naive_mixture(own, x, y, means, covariance)))
        total = sum(n for n, *_ in sent)
        network.encoder.load_state_dict({name: sum(n / total * e[name] for n, e, *_ in sent) for name in sent[0][1]})
        means = sum(n / total * each for n, _, each, _ in sent)
        covariance = sum(n / total * each for n, _, _, each in sent)
        state, _ = simulation.advance(state)
        test, correct, count = simulation.federation.client_test, 0, 0
        for client, (x, y) in enumerate(data):
            own = copy.deepcopy(network)
            naive_head(own, *naive_mixture(own, x, y, means, covariance), y)
            inputs, labels = simulation.phase(state).samples.gather(test[client])
            correct += int((own(simulation.phase(state).samples.encoding(inputs)).argmax(1) == labels).sum())
            count += len(labels)
        assert simulation.evaluator(state).metrics(state)["test/accuracy"] == pytest.approx(correct / count)
    views = layout.views(state.server.model)
    for name, tensor in network.encoder.state_dict().items():
        torch.testing.assert_close(views[f"encoder.{name}"], tensor, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(state.server.slots[pfedfda.MEANS].view_as(means).double(), means, rtol=1e-3, atol=1e-5)
    shape, slots = covariance.shape, state.server.slots
    torch.testing.assert_close(slots[pfedfda.COVARIANCE].view(shape).double(), covariance, rtol=1e-3, atol=1e-5)
    encoder = layout.size - layout.head_size
    sent_once = encoder + layout.classes * layout.embedding + layout.embedding**2
    assert state.totals.params_up == state.totals.params_down == 3 * COHORT * sent_once
    assert state.totals.forward_samples == state.totals.client_samples / 2  # one pass over what trains for two epochs


def test_shares_of_the_classes():
    assert smoothed_log_prior(torch.tensor([3, 0])).exp().tolist() == pytest.approx([3.0001 / 3.0002, 0.0001 / 3.0002])


def test_a_head_without_bias_is_refused(make_experiment):
    def unbiased(spec):
        network = mlp(spec)
        network.head = torch.nn.Linear(network.head.in_features, network.head.out_features, bias=False)
        return network

    experiment = make_experiment(network=unbiased, strategy=Strategy(client=client_strategy(), server=SERVER))
    with pytest.raises(InputError, match="strategy=pfedfda: the model's head has no bias; allowed: "):
        Simulation(experiment).initial()
