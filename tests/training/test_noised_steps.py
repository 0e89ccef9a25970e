"""DP-SGD on a client, against worked numbers and a loop over single samples."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.base import Scaled
from fedrun.data.samples import Samples
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.experiment.experiment import build_experiment
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.fedbabu import FedBABU
from fedrun.system.errors import InputError
from fedrun.training.client_round import ClientRound
from fedrun.training.noised_steps import SampleGradients, sample_gradients_problem, train_noised
from fedrun.uploads.privacy.base import NoisedSteps

LOCAL, STEPS = build_experiment(compose(["~hparams", "local.lr=0.1", "local.batch_size=4"])).local, 6
SGD, FEDPROX = option("strategy/client", "sgd"), option("strategy/client", "fedprox", mu=0.5)
RATE = 0.3


@dataclass(frozen=True)
class HalfSquares(ClientStrategy):
    """The loss ½ (w·x − y)²."""

    def loss(self, outputs, targets, constants):
        return 0.5 * (outputs.logits[:, 0] - targets).square()


def test_worked_numbers():
    """Three samples, gradients (−1.5, −3), (0, −2.5) and (7.5, 0), each clipped to norm 1."""
    network = nn.Sequential(OrderedDict(encoder=nn.Identity(), head=nn.Linear(2, 1, bias=False)))
    network.head.weight.data = torch.tensor([[0.5, -0.5]])
    flat = FlatNetwork(network)
    inputs, targets = torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([1, 2, -1])
    gradients = SampleGradients(flat, HalfSquares(), {}, CLASSIFICATION)
    total = torch.zeros(2)
    gradients.add_clipped(total, inputs, targets, 1.0)
    assert total.tolist() == pytest.approx([0.5527864, -1.8944272])
    assert gradients.processed == 3
    assert float(gradients.losses) == pytest.approx(0.5 * (1.5**2 + 2.5**2 + 2.5**2))
    # z = 0.5, ξ = (0.4, −1), q_s n = 4, rate 0.1
    noised = (total + 0.5 * torch.tensor([0.4, -1.0])) / 4
    assert (flat.vector - 0.1 * noised).tolist() == pytest.approx([0.4811803, -0.4401393])


def few_samples(count=23, shape=(1, 6, 6)):
    draw = torch.Generator().manual_seed(3)
    inputs = torch.randint(0, 256, (count, *shape), generator=draw).to(torch.uint8)
    return Samples(inputs, torch.randint(0, 3, (count,), generator=draw), Scaled(255.0), torch.device("cpu"))


def perceptron():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(5, 3)))


def group_norm():
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(64, 3)))


class Scale(nn.Module):
    """A factor that is trained, a tensor without dimensions."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.factor * x


def scaled():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), Scale())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(5, 3)))


def gradient_of(network, samples, index):
    loss = nn.functional.cross_entropy(
        network(samples.inputs[[index]].float() / 255), samples.targets[[index]], reduction="sum"
    )
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, list(network.parameters()))])


def naive_steps(network, samples, indices, noised, momentum, mu, moving):
    """One sample after another, with the generators of :func:`generators`; ``moving`` is 0 for frozen parameters."""
    draw, noise = generators()
    parameters = list(network.parameters())
    start = torch.cat([parameter.detach().flatten() for parameter in parameters])
    velocity = torch.zeros_like(start)
    for _ in range(STEPS):
        uniform = torch.rand(len(indices), generator=draw, dtype=torch.float64)
        chosen = [index for index, u in zip(indices.tolist(), uniform, strict=True) if u < noised.probability]
        total = torch.zeros_like(start)
        for index in chosen:
            gradient = moving * gradient_of(network, samples, index)
            total += gradient * min(1.0, noised.clip / max(float(gradient.norm()), 1e-12))
        total += noised.noise_multiplier * noised.clip * moving * torch.randn(len(start), generator=noise)
        now = torch.cat([parameter.detach().flatten() for parameter in parameters])
        velocity = momentum * velocity + total / (noised.probability * len(indices)) + mu * (now - start)
        begin = 0
        for parameter in parameters:
            parameter.data -= RATE * velocity[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()


def generators():
    return torch.Generator().manual_seed(8), torch.Generator().manual_seed(9)


@pytest.mark.parametrize("build", [perceptron, group_norm, scaled])
@pytest.mark.parametrize(
    ("strategy", "mu"), [(SGD, 0.0), (FEDPROX, 0.5), (FedBABU(), 0.0)], ids=["sgd", "fedprox", "fedbabu"]
)
def test_a_loop_over_samples_does_the_same(build, strategy, mu):
    torch.manual_seed(0)
    network, samples, indices = build(), few_samples(), torch.arange(3, 23)
    naive, flat, noised = copy.deepcopy(network), FlatNetwork(network), NoisedSteps(0.4, 0.7, 0.3)
    constants = {"anchor": flat.vector.clone()} if strategy is FEDPROX else {}
    client = ClientRound(flat, strategy, replace(LOCAL, momentum=0.9), samples, indices, RATE, constants)
    trained = train_noised(client, STEPS, noised, *generators())
    moving = torch.ones(flat.layout.trainable)
    if isinstance(strategy, FedBABU):
        moving[flat.layout.head] = 0
    naive_steps(naive, samples, indices, noised, 0.9, mu, moving)
    for name, tensor in naive.named_parameters():
        torch.testing.assert_close(flat.network.get_parameter(name).detach(), tensor.detach(), rtol=1e-4, atol=1e-6)
    assert trained.steps == STEPS
    assert 0 < trained.processed < STEPS * len(indices)


def test_one_more_sample_moves_a_sum_by_at_most_the_clip():
    torch.manual_seed(0)
    flat, samples = FlatNetwork(perceptron()), few_samples()
    x, y = samples.encoding(samples.inputs), samples.targets
    for clip in (1e-3, 0.1, 10.0):
        sums = []
        for count in (22, 23):
            sums.append(torch.zeros(flat.layout.trainable))
            SampleGradients(flat, SGD, {}, samples.task).add_clipped(sums[-1], x[:count], y[:count], clip)
        assert float((sums[1] - sums[0]).norm()) <= clip * (1 + 1e-5)


def test_steps_without_samples_are_noise():
    """The deviation of a step is η z C / (q_s n_k)."""
    torch.manual_seed(0)
    flat, samples = (
        FlatNetwork(nn.Sequential(OrderedDict(encoder=nn.Flatten(), head=nn.Linear(36, 300)))),
        few_samples(),
    )
    start, noised = flat.vector.clone(), NoisedSteps(2.0, 1.5, 1e-9)
    client = ClientRound(flat, SGD, LOCAL, samples, torch.arange(20), RATE, {})
    trained = train_noised(client, 1, noised, *generators())
    deviation = float((flat.vector - start).std()) / (RATE * 1.5 * 2.0 / (1e-9 * 20))
    assert deviation == pytest.approx(1.0, abs=4 / (2 * flat.layout.trainable) ** 0.5)
    assert (trained.processed, float(trained.loss_sum)) == (0, 0.0)


def test_without_noise_and_clipping_it_is_gradient_descent():
    torch.manual_seed(0)
    network, samples = perceptron(), few_samples()
    flat, ordinary = FlatNetwork(copy.deepcopy(network)), copy.deepcopy(network)
    client = ClientRound(flat, SGD, LOCAL, samples, torch.arange(20), RATE, {})
    train_noised(client, STEPS, NoisedSteps(1e6, 0.0, 1.0), *generators())
    optimizer = torch.optim.SGD(ordinary.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(ordinary(samples.inputs[:20].float() / 255), samples.targets[:20]).backward()
        optimizer.step()
    for name, tensor in ordinary.named_parameters():
        torch.testing.assert_close(flat.network.get_parameter(name).detach(), tensor.detach(), rtol=1e-4, atol=1e-6)


def test_networks_without_sample_gradients():
    class Odd(nn.Module):
        def forward(self, x):
            return x.flatten(1) * float(x.sum())

    def reason(*encoder):
        network = nn.Sequential(OrderedDict(encoder=nn.Sequential(*encoder), head=nn.LazyLinear(3)))
        network(torch.rand(2, 1, 6, 6))
        return sample_gradients_problem(FlatNetwork(network), few_samples())

    assert reason(nn.Flatten()) is None
    assert reason(nn.Flatten(), nn.Dropout(0.5)) is None
    assert reason(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten()) == (
        "BatchNorm2d layers, which mix the samples of a batch"
    )
    twice = nn.Linear(36, 36)
    assert reason(nn.Flatten(), twice, twice) == "a layer in two places"
    hooked = nn.Linear(36, 36)
    hooked.weight.register_hook(lambda gradient: 0 * gradient)
    assert reason(nn.Flatten(), hooked) == "parameters with hooks, which gradients of single samples do not pass"
    assert reason(Odd()) == "layers whose gradients of single samples torch.vmap cannot compute"

    class Last(nn.Module):
        def forward(self, x):
            return x[0][:, -1]

    assert reason(nn.Flatten(2), nn.LSTM(36, 4, batch_first=True), Last()).startswith("LSTM layers, ")


def test_a_sample_that_is_not_finite_counts_as_zero():
    torch.manual_seed(0)
    flat, samples = FlatNetwork(perceptron()), few_samples()
    x, y = samples.encoding(samples.inputs), samples.targets
    expected, total = torch.zeros(flat.layout.trainable), torch.zeros(flat.layout.trainable)
    SampleGradients(flat, SGD, {}, samples.task).add_clipped(expected, x[2:], y[2:], 0.1)
    x[0], x[1] = float("nan"), float("inf")
    SampleGradients(flat, SGD, {}, samples.task).add_clipped(total, x, y, 0.1)
    torch.testing.assert_close(total, expected)


def test_epochs_of_steps():
    """Each step belongs to one of the E epochs, also where 1 / q_s is no whole number."""

    @dataclass(frozen=True)
    class Watching(ClientStrategy):
        seen: list[int]

        def frozen(self, layout, epoch):
            self.seen.append(epoch)

    for share, epochs in ((0.9, [0, 1]), (1.0, [0, 1, 2]), (0.3, [0, 0, 0, 1, 1, 1, 1]), (0.5, [0, 0, 1, 1])):
        watching = Watching([])
        client = ClientRound(FlatNetwork(perceptron()), watching, LOCAL, few_samples(), torch.arange(20), RATE, {})
        train_noised(client, len(epochs), NoisedSteps(1.0, 1.0, share), *generators())
        assert watching.seen == epochs


def test_a_direction_uses_one_noised_gradient():
    """FedCM's step is a mixture of it and the last global direction; a second gradient would cost privacy."""
    torch.manual_seed(0)
    network, samples, noised = perceptron(), few_samples(), NoisedSteps(0.4, 0.7, 0.3)

    @dataclass(frozen=True)
    class Halved(ClientStrategy):
        times: int

        def direction(self, gradient_at, weights, constants):
            gradients = [gradient_at(weights, 0) for _ in range(self.times)]
            return sum(gradients, torch.zeros_like(weights)) / 2

    trained = [FlatNetwork(copy.deepcopy(network)) for _ in range(2)]
    for flat, strategy, rate in zip(trained, (Halved(1), SGD), (2 * RATE, RATE), strict=True):
        client = ClientRound(flat, strategy, LOCAL, samples, torch.arange(20), rate, {})
        train_noised(client, STEPS, noised, *generators())
    torch.testing.assert_close(trained[0].vector, trained[1].vector)
    for times, wrong in (
        (2, "asks for the gradient of batch 0 more often"),
        (0, "uses 0 gradients in 6 steps; allowed"),
    ):
        client = ClientRound(trained[0], Halved(times), LOCAL, samples, torch.arange(20), RATE, {})
        with pytest.raises(InputError, match=rf"Halved.direction: {wrong}"):
            train_noised(client, STEPS, noised, *generators())
