"""Local training: the order of samples, the steps, and training, each against torch's own or a count by hand."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedrun.config.build import build, option
from fedrun.config.composed import compose
from fedrun.data.datasets.base import Scaled
from fedrun.data.samples import Samples
from fedrun.experiment.experiment import build_experiment
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client import ClientStrategy, LinearCorrection
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError
from fedrun.training import fused_sgd as descent
from fedrun.training.batches import epochs, steps_of
from fedrun.training.client_round import ClientRound
from fedrun.training.optimizer_step import repair
from fedrun.training.train import train

SGD = option("strategy/client", "sgd")

LOCAL = build_experiment(compose(["~hparams", "local.lr=0.1", "local.batch_size=4"])).local


def orders(samples: int, local: LocalTraining) -> list[list[int]]:
    count = int(steps_of(torch.tensor([samples]), local))
    return [order.tolist() for order in epochs(samples, local.batch_size, count, torch.Generator().manual_seed(8))]


def permutations(samples: int, count: int) -> list[list[int]]:
    """The first permutations that the same generator draws."""
    draw = torch.Generator().manual_seed(8)
    return [torch.randperm(samples, generator=draw).tolist() for _ in range(count)]


def test_every_epoch_visits_every_sample_in_a_new_order():
    assert orders(10, replace(LOCAL, epochs=3)) == permutations(10, 3)
    assert len({tuple(order) for order in permutations(10, 3)}) == 3


@pytest.mark.parametrize(
    ("samples", "batch", "steps", "lengths"),
    [
        (10, 4, 2, [8]),  # batches of 4, 4
        (10, 4, 3, [10]),  # 4, 4, 2
        (10, 4, 4, [10, 4]),  # 4, 4, 2, then 4 of a new epoch
        (10, 4, 7, [10, 10, 4]),
        (3, 4, 3, [3, 3, 3]),  # less than a batch: an epoch per step
        (10, None, 2, [10, 10]),
        (8, 4, 2, [8]),
        (1, 1, 2, [1, 1]),
    ],
)
def test_a_number_of_steps_begins_as_many_epochs_as_it_needs(samples, batch, steps, lengths):
    local = replace(LOCAL, batch_size=batch, epochs=None, steps=steps)
    whole = permutations(samples, len(lengths))
    expected = [order[:length] for order, length in zip(whole, lengths, strict=True)]
    assert orders(samples, local) == expected
    assert steps_of(torch.tensor([samples]), local).tolist() == [steps]


@pytest.mark.parametrize(
    ("samples", "batch", "passes", "steps"),
    [(10, 4, 1, 3), (10, 4, 3, 9), (8, 4, 2, 4), (3, 4, 1, 1), (10, None, 5, 5), (1, 64, 1, 1)],
)
def test_steps_of_epochs(samples, batch, passes, steps):
    found = steps_of(torch.tensor([samples, 1]), replace(LOCAL, batch_size=batch, epochs=passes))
    assert found.tolist() == [steps, passes]  # a single sample is a batch


@pytest.mark.parametrize("changes", [{"steps": 5}, {"epochs": None}])
def test_epochs_or_steps_but_not_both(changes):
    with pytest.raises(InputError, match=r"local\.epochs=.*local\.steps=.*exactly one"):
        replace(LOCAL, **changes).check(1)
    LOCAL.check(1)
    replace(LOCAL, epochs=None, steps=5).check(1)


@pytest.mark.parametrize(
    ("key", "value"),
    [("lr", 0.0), ("lr_decay", 1.5), ("momentum", 1.0), ("batch_size", 0), ("epochs", 0), ("weight_decay", -1.0)],
)
def test_values_out_of_range_are_refused(key, value):
    fields = {name: getattr(LOCAL, name) for name in LOCAL.__dataclass_fields__}
    node = {"_target_": "fedrun.strategies.local_training.LocalTraining", **fields}
    assert build(node, "local") == LOCAL
    with pytest.raises(InputError, match=rf"local\.{key}="):
        build({**node, key: value}, "local")


def test_repair_replaces_what_is_not_finite():
    parameters = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), -2.0])
    repair(parameters)
    assert parameters.tolist() == pytest.approx([1, 1e-5, 1e-5, 1e-5, -2])


def test_gathering_keeps_the_shape_of_the_indices():
    inputs = torch.arange(20, dtype=torch.uint8).view(5, 2, 2)
    samples = Samples(inputs, torch.tensor([0, 1, 2, 3, 4]), Scaled(255.0), torch.device("cpu"))
    gathered, targets = samples.gather(torch.tensor([[4, 0, 0], [1, 3, 2]]))
    assert gathered.shape == (2, 3, 2, 2)
    assert gathered.dtype == torch.uint8
    assert gathered[1, 1].tolist() == [[12, 13], [14, 15]]
    assert targets.tolist() == [[4, 0, 0], [1, 3, 2]]


def test_what_a_client_reports_is_counted_over_the_models_it_passed_through():
    """Loss and hits are those of the forward passes of training, each with the model of that moment."""
    draw = torch.Generator().manual_seed(3)
    inputs = torch.randint(0, 256, (20, 3), generator=draw).to(torch.uint8)
    targets = torch.randint(0, 2, (20,), generator=draw)
    torch.manual_seed(0)
    network = nn.Sequential(OrderedDict(encoder=nn.Linear(3, 2), head=nn.Linear(2, 2)))
    ordinary = copy.deepcopy(network)
    own = torch.tensor([3, 1, 4, 15, 9, 2, 6, 5, 8, 7])
    samples = Samples(inputs, targets, Scaled(255.0), torch.device("cpu"))
    client = ClientRound(FlatNetwork(network), SGD, LOCAL, samples, own, 0.5, {})
    trained = train(client, 6, torch.Generator().manual_seed(8))
    optimizer = torch.optim.SGD(ordinary.parameters(), lr=0.5)
    loss_sum, correct = 0.0, 0
    for order in permutations(10, 2):
        for batch in (order[:4], order[4:8], order[8:]):
            logits = ordinary(inputs[own[batch]].float() / 255)
            loss = nn.functional.cross_entropy(logits, targets[own[batch]])
            loss_sum += loss.item() * len(batch)
            correct += int((logits.argmax(1) == targets[own[batch]]).sum())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert (trained.steps, trained.processed) == (6, 20)
    assert float(trained.loss_sum) == pytest.approx(loss_sum, rel=1e-5)
    assert int(trained.score_sum) == correct
    for (name, parameter), other in zip(network.named_parameters(), ordinary.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-5, atol=1e-6, msg=name)


def test_training_is_on_augmented_samples():
    """Turning every image into its negative is training on a dataset of negatives; each epoch is passed once."""
    draw = torch.Generator().manual_seed(3)
    inputs = torch.randint(0, 256, (12, 3), generator=draw).to(torch.uint8)
    targets, own = torch.randint(0, 2, (12,), generator=draw), torch.tensor([3, 1, 4, 9, 2, 6, 5])
    models, epochs = [], []

    def negative(images):
        epochs.append(images.clone())
        return 255 - images

    for stored, augment in ((inputs, negative), (255 - inputs, None)):
        network = FlatNetwork(nn.Sequential(OrderedDict(encoder=nn.Identity(), head=nn.Linear(3, 2))))
        network.load(torch.linspace(-1, 1, 8))
        samples = Samples(stored, targets, Scaled(255.0), torch.device("cpu"))
        generator = torch.Generator().manual_seed(8)
        train(ClientRound(network, SGD, LOCAL, samples, own, 0.5, {}, augment=augment), 4, generator)
        models.append(network.vector)
    assert torch.equal(*models)
    assert not torch.equal(models[0], torch.linspace(-1, 1, 8))
    for images, order in zip(epochs, permutations(7, 2), strict=True):
        assert torch.equal(images, inputs[own[order]])


def test_a_client_with_one_sample_trains():
    network = FlatNetwork(nn.Sequential(OrderedDict(encoder=nn.Identity(), head=nn.Linear(3, 2))))
    samples = Samples(torch.ones(2, 3, dtype=torch.uint8), torch.tensor([0, 1]), Scaled(1.0), torch.device("cpu"))
    before = network.vector.clone()
    trained = train(ClientRound(network, SGD, LOCAL, samples, torch.tensor([1]), 0.1, {}), 1, torch.Generator())
    assert (trained.steps, trained.processed) == (1, 1)
    assert not torch.equal(network.vector, before)


def test_the_correction_comes_before_clipping_and_never_touches_buffers():
    """A client strategy that replaces the gradient by tens: clipped to norm 1, the step is 0.1 / sqrt(T) everywhere."""

    class Tens(ClientStrategy):
        def direction(self, gradient, model, constants):
            assert gradient(model, 0).shape == model.shape == (8,)
            return torch.full_like(model, 10.0)

    torch.manual_seed(0)
    encoder = nn.BatchNorm1d(2, momentum=1.0)
    network = FlatNetwork(nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(2, 2, bias=False))))
    samples = Samples(
        torch.tensor([[0, 2], [4, 2], [2, 8]], dtype=torch.uint8),
        torch.tensor([0, 1, 0]),
        Scaled(1.0),
        torch.device("cpu"),
    )
    start = network.vector.clone()
    client = ClientRound(network, Tens(), replace(LOCAL, max_gradient_norm=1.0), samples, torch.arange(3), 0.1, {})
    train(client, 1, torch.Generator())
    assert (start - network.vector)[:8].tolist() == pytest.approx([0.1 / 8**0.5] * 8, abs=1e-6)
    # BatchNorm with momentum 1 remembers the last batch: means 2 and 4, unbiased variances 4 and 12
    assert network.vector[8:].tolist() == pytest.approx([2, 4, 4, 12], abs=1e-5)


@pytest.mark.parametrize("local", [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "max_gradient_norm": 0.3}])
@pytest.mark.parametrize("strength", [None, 0.5])
@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("large", [0, 10**6], ids=["large layers", "small layers"])
def test_a_pull_is_added_to_every_gradient(monkeypatch, local, strength, decays, large):
    """Against autograd on an ordinary copy; only clipping needs the gradient itself."""
    monkeypatch.setattr(descent, "LARGE", large)
    shift = torch.linspace(-0.4, 0.4, 8)

    class Pulled(ClientStrategy):
        def linear_correction(self, constants):
            return LinearCorrection(shift, None if strength is None else torch.tensor([strength]), decays)

    torch.manual_seed(0)
    network = FlatNetwork(nn.Sequential(OrderedDict(encoder=nn.Sequential(nn.Identity()), head=nn.Linear(3, 2))))
    samples = Samples(torch.randn(12, 3), torch.randint(0, 2, (12,)), lambda x: x, torch.device("cpu"))
    way = replace(LOCAL, batch_size=4, **local)
    y = network.vector.clone()
    client = ClientRound(network, Pulled(), way, samples, torch.arange(12), 0.2, {})
    train(client, 6, torch.Generator().manual_seed(8))
    for order in permutations(12, 2):
        for batch in torch.tensor(order).split(4):
            at = y.clone().requires_grad_()
            logits = samples.inputs[batch] @ at[:6].view(2, 3).T + at[6:]
            nn.functional.cross_entropy(logits, samples.targets[batch]).backward()
            linear_correction = 0 if strength is None else strength * y
            gradient = at.grad + shift + (0 if decays else linear_correction)
            if way.max_gradient_norm:
                gradient *= min(1, way.max_gradient_norm / gradient.norm())
            y -= 0.2 * (gradient + (linear_correction if decays else 0) + way.weight_decay * y)
    torch.testing.assert_close(network.vector, y, rtol=1e-5, atol=1e-6)
