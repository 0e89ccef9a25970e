"""TurboSVM-FL: the worked example, then whole rounds against the naive server."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.svm import SVC
from torch import nn

from fedrun.config.build import option
from fedrun.models.flat_network import Layout, layout_of
from fedrun.strategies import svm
from fedrun.strategies.head_refinement import HeadRefinement
from fedrun.strategies.server import CohortUpdate, Round, ServerState, ServerStrategy
from fedrun.strategies.svm import Kernel, fit, spread_out_loss
from fedrun.strategies.turbosvm import TurboSVM
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError, RunError

from ..helpers.naive_turbosvm import (
    NaiveTurboSVM,
    aggregate,
    fitted,
    kernel_loss,
    mean_rows,
    one_against_rest_loss,
    selected,
    stacked,
)
from ..helpers.quadratic_clients import SCAFFOLD, UNIFORM, round_of, senders_of
from ..helpers.strategies import fedaws, turbosvm

LINEAR = Kernel("linear", 1.0, 1.0, 3)


@cache
def layout_with(classes: int, embedding: int, bias: bool = True) -> Layout:
    """2 -> d -> C; the encoder has 3 d parameters."""
    encoder, head = nn.Linear(2, embedding), nn.Linear(embedding, classes, bias=bias)
    return layout_of(nn.Sequential(OrderedDict(encoder=encoder, head=head)))


def model_of(encoder: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """A model's vector from its encoder and its class embeddings ``[C, d + 1]``: encoder, head weight, head bias."""
    return torch.cat([encoder, rows[:, :-1].flatten(), rows[:, -1]]).float()


def rows_of(model: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The class embeddings ``[C, d + 1]`` in a model's vector."""
    cut = 3 * layout.embedding
    weight = model[cut : cut + layout.classes * layout.embedding].view(layout.classes, layout.embedding)
    return torch.cat([weight, model[cut + weight.numel() : cut + weight.numel() + layout.classes, None]], dim=1)


def update_of(models: torch.Tensor, samples: list[int], layout: Layout) -> CohortUpdate:
    """What an executor hands over: ``models`` ``[M, P]``."""
    count = len(samples)
    return CohortUpdate(
        weights=torch.tensor(samples, dtype=torch.float64),
        clients=torch.arange(count),
        samples=torch.tensor(samples),
        steps=torch.ones(count, dtype=torch.int64),
        mean={MODEL: mean_rows(models, samples).float()},
        rows=models[:, 3 * layout.embedding :].clone(),
        excluded=(),
        loss=0.0,
        score=0.0,
    )


class Cohorts:
    """What clients send over rounds: embeddings that scatter around their class's centre, some widely, some little."""

    def __init__(self, classes: int, embedding: int, clients: int, seed: int, spread: float = 0.5) -> None:
        self.layout = layout_with(classes, embedding)
        self.clients = clients
        self.draw = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(classes, embedding + 1, generator=self.draw)
        self.width = torch.rand(classes, 1, generator=self.draw) * 2 * spread
        self.samples = torch.randint(3, 60, (clients,), generator=self.draw).tolist()

    def models(self) -> torch.Tensor:
        """The next round's uploads ``[M, P]``."""
        noise = torch.randn(self.clients, *self.centres.shape, generator=self.draw)
        encoders = torch.randn(self.clients, 3 * self.layout.embedding, generator=self.draw)
        rows = self.centres + self.width * noise
        return torch.stack([model_of(*pair) for pair in zip(encoders, rows, strict=True)])

    def embeddings(self, models: torch.Tensor) -> torch.Tensor:
        return torch.stack([rows_of(model, self.layout) for model in models])

    def initial(self) -> torch.Tensor:
        return model_of(torch.zeros(3 * self.layout.embedding), torch.zeros_like(self.centres))

    def round(self, index: int, total: int = 3) -> Round:
        return Round(index=index, total=total, clients=20, layout=self.layout, seed=4, lr=0.1)


def support_of(models: torch.Tensor, cohorts: Cohorts, strategy: TurboSVM, t: int, total: int) -> dict[int, list[int]]:
    """Which clients' embeddings of each class the strategy's SVM selects."""
    samples = cohorts.embeddings(models).double()
    svm = fit(samples, LINEAR, "ovo", strategy.penalty(t, total), strategy.tolerance, strategy.max_iterations)
    return {c: row.nonzero().flatten().tolist() for c, row in enumerate(svm.support)}


# --- the worked example: d = 1, two clients with n = (1, 3), embeddings (W, b) ---------------------------------------

EXAMPLE = torch.tensor([[[2.0, 0], [-2, 0]], [[3, 0], [-3, 0]]])


def example_round(strategy: TurboSVM, index: int) -> tuple[torch.Tensor, dict[str, float]]:
    """The class embeddings after the round, and its metrics."""
    layout = layout_with(2, 1)
    models = torch.stack([model_of(torch.zeros(3), rows) for rows in EXAMPLE])
    update = update_of(models, [1, 3], layout)
    state = strategy.init(torch.zeros(7), layout, 4)
    state, metrics = strategy.aggregate(state, update, Round(index, 50, 2, layout, 0, 0.1))
    return rows_of(state.model, layout), metrics


def test_with_a_large_penalty_the_inner_embeddings_are_the_support_vectors():
    rows, metrics = example_round(turbosvm(spread_out=False, schedule="constant"), 0)
    assert rows.tolist() == [[2, 0], [-2, 0]]
    assert metrics["support_vectors"] == 2
    assert (metrics["support_vectors/0"], metrics["support_vectors/1"]) == (1, 1)
    assert metrics["svm_penalty"] == 1


def test_with_a_small_penalty_all_embeddings_are_support_vectors():
    rows, metrics = example_round(turbosvm(spread_out=False, schedule_rounds=50), 49)  # C = (50 - 49) / 50
    torch.testing.assert_close(rows, torch.tensor([[2.75, 0], [-2.75, 0]]))
    assert metrics["support_vectors"] == 4
    assert metrics["svm_penalty"] == pytest.approx(0.02)


@pytest.mark.parametrize(("penalty", "normal"), [(1.0, 0.5), (0.02, 0.2)])
def test_the_normal_of_the_worked_example(penalty, normal):
    svm = fit(EXAMPLE.double(), LINEAR, "ovo", penalty, 1e-3, 50)
    assert svm.squared_norms[0, 1].item() == pytest.approx(normal**2)
    own = (svm.dual[0, 1, :, None] * svm.samples[0]).sum(0) + (svm.dual[1, 0, :, None] * svm.samples[1]).sum(0)
    assert own.abs().tolist() == pytest.approx([normal, 0])


@pytest.mark.parametrize(("eps", "moved"), [(1e-5, 2.00992603), (1e-8, 2.01)])
def test_the_spread_out_step_of_the_worked_example(eps, moved):
    rows, metrics = example_round(turbosvm(schedule="constant", lr=0.01, adam_eps=eps), 0)
    torch.testing.assert_close(rows, torch.tensor([[moved, 0], [-moved, 0]]), rtol=0, atol=5e-7)
    assert metrics["spread_out_loss"] == pytest.approx(3.354626e-4, rel=1e-6)


def test_the_spread_out_loss_and_its_gradient():
    svm = fit(torch.tensor([[[1.0, 0], [-1, 0]]]).double(), LINEAR, "ovo", 1.0, 1e-3, 50)  # h = (1, 0)
    embeddings = torch.tensor([[0.5, 0.1], [-0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    loss = spread_out_loss(svm, LINEAR, embeddings)
    loss.backward()
    assert loss.item() == pytest.approx(0.6065307, abs=1e-7)
    expected = torch.tensor([[-0.6065307, 0], [0.6065307, 0]], dtype=torch.float64)
    torch.testing.assert_close(embeddings.grad, expected, rtol=0, atol=1e-7)


# --- whole rounds against the naive server ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "embedding", "clients", "spread"),
    [(2, 1, 3, 0.5), (2, 4, 8, 2.0), (3, 2, 5, 1.0), (3, 5, 1, 0.5), (4, 1, 8, 1.0), (10, 3, 4, 0.3), (10, 6, 8, 1.0)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_rounds_against_the_naive_server(classes, embedding, clients, spread, seed):
    compare(Cohorts(classes, embedding, clients, seed, spread), turbosvm(schedule_rounds=None, lr=0.05), rounds=3)


def test_rounds_of_femnists_size():
    """62 classes are 1891 pairs."""
    compare(Cohorts(62, 64, 8, seed=2, spread=1.0), turbosvm(), rounds=2)


def test_rounds_in_which_libsvm_stops_early():
    """Which points are support vectors after 50 iterations depends on the order of the samples."""
    cohorts = Cohorts(4, 2, 32, seed=6, spread=10.0)
    models = cohorts.models()
    for iterations, early in ((50, True), (-1, False)):
        strategy = turbosvm(max_iterations=iterations)
        update = update_of(models, cohorts.samples, cohorts.layout)
        _, metrics = strategy.aggregate(strategy.init(cohorts.initial(), cohorts.layout, 32), update, cohorts.round(0))
        assert metrics["svm_stopped_early"] == early
    compare(cohorts, turbosvm(), rounds=2)


def test_the_last_rounds_of_the_schedule():
    """C_t = 1/201: almost everything is a support vector."""
    compare(Cohorts(5, 3, 6, seed=5), turbosvm(), rounds=2, first=199)


def test_without_an_iteration_limit():
    compare(Cohorts(6, 3, 8, seed=6, spread=2.0), turbosvm(max_iterations=-1), rounds=2)


def compare(cohorts: Cohorts, strategy: TurboSVM, rounds: int, first: int = 0) -> None:
    layout = cohorts.layout
    state = strategy.init(cohorts.initial(), layout, 4)
    naive = NaiveTurboSVM(rows_of(cohorts.initial(), layout), strategy.lr, strategy.adam_eps, strategy.max_iterations)
    every_class = list(range(layout.classes))
    total = strategy.schedule_rounds or first + rounds
    unequal = []
    for t in range(first, first + rounds):
        models = cohorts.models()
        embeddings = cohorts.embeddings(models)
        base = mean_rows(embeddings, cohorts.samples)
        expected = naive.round(embeddings, cohorts.samples, (total - t) / total, base, every_class)
        assert support_of(models, cohorts, strategy, t, first + rounds) == expected
        state, metrics = strategy.aggregate(state, update_of(models, cohorts.samples, layout), cohorts.round(t, rounds))
        assert [metrics[f"support_vectors/{c}"] for c in every_class] == [len(expected[c]) for c in every_class]
        assert metrics["support_vectors"] == sum(map(len, expected.values()))
        torch.testing.assert_close(rows_of(state.model, layout).double(), naive.embeddings.data, rtol=1e-5, atol=1e-5)
        encoder = mean_rows(models, cohorts.samples)[: 3 * layout.embedding]
        torch.testing.assert_close(state.model[: len(encoder)].double(), encoder, rtol=1e-5, atol=1e-6)
        unequal.append(min(map(len, expected.values())) < max(map(len, expected.values())))
    if cohorts.clients > 3 and layout.classes > 2 and first == 0:
        assert any(unequal)  # classes must differ in their number of support vectors, or the packing is not tested


@pytest.mark.parametrize(("selective", "spread_out"), [(True, False), (False, True)])
def test_one_of_the_two_steps_alone(selective, spread_out):
    cohorts = Cohorts(4, 3, 6, seed=7, spread=1.5)
    strategy = turbosvm(selective=selective, spread_out=spread_out, schedule="constant")
    naive = NaiveTurboSVM(rows_of(cohorts.initial(), cohorts.layout), strategy.lr)
    naive.selective, naive.spread_out = selective, spread_out
    state = strategy.init(cohorts.initial(), cohorts.layout, 4)
    for t in range(3):
        models = cohorts.models()
        embeddings = cohorts.embeddings(models)
        base = mean_rows(embeddings, cohorts.samples)
        naive.round(embeddings, cohorts.samples, 1.0, base, [0, 1, 2, 3])
        update = update_of(models, cohorts.samples, cohorts.layout)
        state, _ = strategy.aggregate(state, update, cohorts.round(t))
        own = rows_of(state.model, cohorts.layout).double()
        torch.testing.assert_close(own, naive.embeddings.data, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(own, base, atol=1e-3)


def test_with_both_steps_off_it_is_the_base():
    cohorts = Cohorts(3, 2, 4, seed=8)
    update = update_of(cohorts.models(), cohorts.samples, cohorts.layout)
    strategy = turbosvm(selective=False, spread_out=False)
    state, _ = strategy.aggregate(strategy.init(cohorts.initial(), cohorts.layout, 4), update, cohorts.round(0))
    assert torch.equal(state.model, update.mean[MODEL])


def test_embeddings_that_have_diverged_end_the_run():
    """Their products leave the range of float64, though they are within that of float32."""
    cohorts = Cohorts(3, 2, 4, seed=8)
    strategy = turbosvm(kernel="poly", degree=9)
    update = update_of(1e35 * cohorts.models(), cohorts.samples, cohorts.layout)
    with pytest.raises(RunError, match=r"round 1: no SVM can be fitted .* a smaller local\.lr usually helps"):
        strategy.aggregate(strategy.init(cohorts.initial(), cohorts.layout, 4), update, cohorts.round(0))


def test_the_state_before_is_left_alone():
    cohorts = Cohorts(3, 2, 4, seed=8)
    update = update_of(cohorts.models(), cohorts.samples, cohorts.layout)
    strategy = turbosvm()
    state = strategy.init(cohorts.initial(), cohorts.layout, 4)
    before = {name: slot.clone() for name, slot in state.slots.items()}
    mean, rows = update.mean[MODEL].clone(), update.rows.clone()
    first, metrics = strategy.aggregate(state, update, cohorts.round(0))
    again, metrics_again = strategy.aggregate(state, update, cohorts.round(0))
    assert torch.equal(first.model, again.model)
    assert metrics == metrics_again
    assert all(torch.equal(before[name], slot) for name, slot in state.slots.items())
    assert torch.equal(update.mean[MODEL], mean)
    assert torch.equal(update.rows, rows)
    assert torch.equal(state.model, cohorts.initial())


# --- one against the rest, kernels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "spread"), [(2, 1.0), (3, 0.3), (7, 1.0)])
@pytest.mark.parametrize("penalty", [1.0, 0.1])
def test_one_against_the_rest(classes, spread, penalty):
    cohorts = Cohorts(classes, 3, 6, seed=9, spread=spread)
    embeddings = cohorts.embeddings(cohorts.models()).double()
    points = torch.randn(classes, 4, dtype=torch.float64, generator=cohorts.draw)
    assert_same_loss(
        embeddings,
        points,
        fit(embeddings, LINEAR, "ovr", penalty, 1e-3, 50),
        LINEAR,
        lambda rows, labels, own: one_against_rest_loss(rows, labels, penalty, 50, own),
    )


@pytest.mark.parametrize("kernel", ["poly", "rbf", "sigmoid"])
@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize(("gamma", "coef0", "degree"), [(1.0, 1.0, 3), (0.3, 0.5, 2)])
def test_kernels(kernel, classes, gamma, coef0, degree):
    cohorts = Cohorts(classes, 3, 6, seed=10, spread=0.8)
    embeddings = cohorts.embeddings(cohorts.models()).double()
    points = 0.5 * torch.randn(classes, 4, dtype=torch.float64, generator=cohorts.draw)
    settings = {"kernel": kernel, "gamma": gamma, "coef0": coef0, "degree": degree}

    def naive(rows: np.ndarray, labels: np.ndarray, own: torch.Tensor) -> tuple[torch.Tensor, dict[int, list[int]]]:
        svm = fitted(rows, labels, 0.7, 50, **settings)
        return kernel_loss(svm, rows, labels, settings, own), selected(svm, labels)

    own = Kernel(kernel, gamma, coef0, degree)
    assert_same_loss(embeddings, points, fit(embeddings, own, "ovo", 0.7, 1e-3, 50), own, naive)


def assert_same_loss(embeddings, points, svm, kernel, naive) -> None:
    """Support vectors, the loss and its gradient at ``points`` ``[C, d]``."""
    classes = embeddings.shape[1]
    rows, labels = stacked(embeddings, list(range(classes)))
    own, other = points.clone().requires_grad_(), points.clone().requires_grad_()
    expected, support = naive(rows, labels, other)
    for c in range(classes):
        assert svm.support[c].nonzero().flatten().tolist() == [position // classes for position in support[c]]
    loss = spread_out_loss(svm, kernel, own)
    assert 0 < loss.item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-9)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(own.grad, other.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", ["poly", "rbf", "sigmoid"])
def test_a_round_with_a_kernel(kernel):
    cohorts = Cohorts(3, 2, 5, seed=12, spread=0.8)
    models = cohorts.models()
    embeddings = cohorts.embeddings(models)
    strategy = turbosvm(kernel=kernel, degree=2, schedule="constant")
    state = strategy.init(cohorts.initial(), cohorts.layout, 4)
    state, metrics = strategy.aggregate(state, update_of(models, cohorts.samples, cohorts.layout), cohorts.round(0))
    rows, labels = stacked(embeddings, [0, 1, 2])
    settings = {"kernel": kernel, "gamma": 1.0, "coef0": 1.0, "degree": 2}
    svm = fitted(rows, labels, 1.0, 50, **settings)
    weights = [float(cohorts.samples[position // 3]) for position in range(15)]
    support = selected(svm, labels)
    means = np.stack([aggregate(rows, support[c], weights) for c in range(3)])
    naive = torch.nn.Parameter(torch.from_numpy(means))
    loss = kernel_loss(svm, rows, labels, settings, naive)
    loss.backward()
    torch.optim.Adam([naive], lr=0.01, eps=1e-5).step()
    assert metrics["spread_out_loss"] == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(rows_of(state.model, cohorts.layout).double(), naive.data, rtol=1e-5, atol=1e-5)


def test_the_linear_kernel_agrees_with_scikit_learns_normals():
    """The classes differ in their number of support vectors, so dual_coef_'s columns differ in meaning."""
    cohorts = Cohorts(5, 2, 7, seed=3, spread=1.0)
    embeddings = cohorts.embeddings(cohorts.models()).double()
    rows, labels = stacked(embeddings, list(range(5)))
    normals = SVC(kernel="linear", C=1.0, tol=1e-3, max_iter=50).fit(rows, labels).coef_
    svm = fit(embeddings, LINEAR, "ovo", 1.0, 1e-3, 50)
    assert len(set(svm.support.sum(1).tolist())) > 1
    pair = 0
    for i in range(5):
        for j in range(i + 1, 5):
            own = svm.dual[i, j] @ svm.samples[i] + svm.dual[j, i] @ svm.samples[j]
            np.testing.assert_allclose(own.numpy(), normals[pair], rtol=1e-6, atol=1e-9)
            assert svm.squared_norms[i, j].item() == pytest.approx(normals[pair] @ normals[pair])
            pair += 1


def test_problems_without_a_normal_are_skipped():
    """All embeddings alike: no hyperplane separates anything, and nothing may become NaN."""
    cohorts = Cohorts(3, 2, 4, seed=8)
    cohorts.centres.zero_()
    cohorts.width.zero_()
    strategy = turbosvm()
    state = strategy.init(cohorts.initial(), cohorts.layout, 4)
    state, metrics = strategy.aggregate(
        state, update_of(cohorts.models(), cohorts.samples, cohorts.layout), cohorts.round(0)
    )
    assert torch.equal(rows_of(state.model, cohorts.layout), torch.zeros(3, 3))
    assert metrics["spread_out_loss"] == 0


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "total", "penalties"),
    [
        ("decreasing", None, [1.0, 0.75, 0.5, 0.25]),
        ("increasing", None, [0.25, 0.5, 0.75, 1.0]),
        ("constant", None, [1.0, 1.0, 1.0, 1.0]),
        ("decreasing", 8, [1.0, 0.875, 0.75, 0.625]),
        ("increasing", 8, [0.125, 0.25, 0.375, 0.5]),
        ("constant", 2, [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_schedules(schedule, total, penalties):
    strategy = turbosvm(schedule=schedule, schedule_rounds=total)
    strategy.check(4)
    assert [strategy.penalty(t, 4) for t in range(4)] == penalties


@pytest.mark.parametrize("schedule", ["decreasing", "increasing"])
def test_more_rounds_than_the_schedule_has_are_refused(schedule):
    turbosvm(schedule=schedule).check(201)
    with pytest.raises(InputError, match="rounds=202.*schedule_rounds=201"):
        turbosvm(schedule=schedule).check(202)
    turbosvm(schedule=schedule, schedule_rounds=None).check(10_000)


def test_a_turbosvm_on_a_turbosvm_is_refused():
    with pytest.raises(InputError, match=r"strategy\.server\.base"):
        turbosvm(base=turbosvm()).check(10)


@pytest.mark.parametrize(
    ("share", "classes", "count"),
    [
        (1.0, 10, 10),
        (0.5, 10, 5),
        (0.29, 10, 2),
        (0.3, 10, 3),
        (0.01, 62, 2),
        (0.7, 3, 2),
        (4, 10, 4),
        (40, 10, 10),
        (2, 2, 2),
    ],
)
def test_how_many_classes_enter_the_svm(share, classes, count):
    strategy, cohorts = turbosvm(classes_per_round=share), Cohorts(classes, 1, 2, seed=0)
    chosen = strategy.chosen_classes(classes, cohorts.round(0))
    assert len(chosen) == len(set(chosen.tolist())) == count
    assert chosen.tolist() == sorted(chosen.tolist())
    assert 0 <= min(chosen.tolist()) <= max(chosen.tolist()) < classes


def test_classes_are_drawn_anew_and_uniformly():
    strategy, cohorts = turbosvm(classes_per_round=3), Cohorts(6, 1, 2, seed=0)
    times = torch.zeros(6)
    for t in range(600):
        times[strategy.chosen_classes(6, cohorts.round(t))] += 1
    assert times.sum() == 1800
    assert ((times - 300).abs() < 60).all()  # 5 standard deviations of sqrt(600 / 4) are 61


def test_classes_that_are_not_chosen_keep_the_base_but_move_by_momentum():
    cohorts = Cohorts(5, 2, 5, seed=13)
    strategy = turbosvm(classes_per_round=3, schedule="constant")
    naive = NaiveTurboSVM(rows_of(cohorts.initial(), cohorts.layout), strategy.lr)
    state, ever, moved_by_momentum = strategy.init(cohorts.initial(), cohorts.layout, 4), set(), 0
    for t in range(4):
        models = cohorts.models()
        embeddings = cohorts.embeddings(models)
        base = mean_rows(embeddings, cohorts.samples)
        chosen = strategy.chosen_classes(5, cohorts.round(t)).tolist()
        naive.round(embeddings, cohorts.samples, 1.0, base, chosen)
        state, metrics = strategy.aggregate(state, update_of(models, cohorts.samples, cohorts.layout), cohorts.round(t))
        own = rows_of(state.model, cohorts.layout).double()
        torch.testing.assert_close(own, naive.embeddings.data, rtol=1e-5, atol=1e-5)
        assert {name for name in metrics if "/" in name} == {f"support_vectors/{c}" for c in chosen}
        for c in set(range(5)) - set(chosen):
            if c in ever:
                moved_by_momentum += int((own[c] - base[c]).abs().max() > 1e-3)
            else:
                torch.testing.assert_close(own[c], base[c], rtol=1e-6, atol=1e-6)
        ever |= set(chosen)
    assert moved_by_momentum


@pytest.mark.parametrize(("has_bias", "setting"), [(True, "separate"), (False, "separate"), (False, "coordinate")])
def test_embeddings_without_the_bias(has_bias, setting):
    """The embedding is the weight row alone; the bias, where the head has one, is the base's."""
    cohorts = Cohorts(3, 2, 5, seed=14, spread=1.0)
    layout = layout_with(3, 2, bias=has_bias)
    models = cohorts.models()
    embeddings = cohorts.embeddings(models)
    base = mean_rows(embeddings, cohorts.samples)
    naive = NaiveTurboSVM(torch.zeros(3, 2), 0.01)
    naive.round(embeddings[..., :-1], cohorts.samples, 1.0, base[:, :-1], [0, 1, 2])
    strategy = turbosvm(bias=setting)
    state = strategy.init(torch.zeros(layout.size), layout, 4)
    update = update_of(models[:, : layout.size], cohorts.samples, layout)
    state, _ = strategy.aggregate(state, update, Round(0, 3, 20, layout, 4, 0.1))
    torch.testing.assert_close(state.model[6:12].view(3, 2).double(), naive.embeddings.data, rtol=1e-5, atol=1e-5)
    biases = base[:, -1] if has_bias else base[:0, -1]
    torch.testing.assert_close(state.model[12:].double(), biases, rtol=1e-5, atol=1e-6)


def test_on_fedadam_the_encoder_moves_by_fedadam_and_the_head_by_turbosvm():
    cohorts = Cohorts(3, 2, 4, seed=15)
    strategy = turbosvm(base=option("strategy/server", "fedadam"), schedule="constant")
    model = torch.nn.Parameter(cohorts.initial().double())
    adam = torch.optim.Adam([model], lr=0.001)
    naive = NaiveTurboSVM(rows_of(cohorts.initial(), cohorts.layout), strategy.lr)
    state = strategy.init(cohorts.initial(), cohorts.layout, 4)
    for t in range(3):
        models = cohorts.models()
        model.grad = model.data - mean_rows(models, cohorts.samples)
        adam.step()
        base = rows_of(model.data, cohorts.layout)
        naive.round(cohorts.embeddings(models), cohorts.samples, 1.0, base, [0, 1, 2])
        with torch.no_grad():
            model.copy_(model_of(model.data[:6], naive.embeddings.data).double())
        state, _ = strategy.aggregate(state, update_of(models, cohorts.samples, cohorts.layout), cohorts.round(t))
        torch.testing.assert_close(state.model.double(), model.data, rtol=1e-5, atol=1e-5)
    assert isinstance(state, ServerState)


@pytest.mark.parametrize("name", ["linear", "poly", "rbf"])
@pytest.mark.parametrize("block", [1, 3, 4, 6])
def test_a_large_kernel_matrix_is_computed_in_blocks(monkeypatch, name, block):
    monkeypatch.setattr(svm, "BLOCK", block)
    kernel = svm.Kernel(name, 0.5, 1.0, 3)
    rows = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(svm.gram_matrix(kernel, rows), kernel(rows, rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [LINEAR, svm.Kernel("rbf", 0.3, 0.0, 3)])
@pytest.mark.parametrize(("classes", "clients"), [(3, 1), (4, 6), (7, 40)])
@pytest.mark.parametrize("iterations", [3, 50, -1])
def test_large_cohorts_are_fitted_pair_by_pair(monkeypatch, kernel, classes, clients, iterations):
    """From one matrix of all kernel values or from those of two classes at a time: libsvm makes the same steps."""
    draw = torch.Generator().manual_seed(classes)
    samples = torch.randn(clients, classes, 5, dtype=torch.float64, generator=draw)
    settings = (kernel, "ovo", 0.7, 1e-3, iterations)
    whole = fit(samples, *settings)
    monkeypatch.setattr(svm, "PAIRWISE", 1)
    monkeypatch.setattr(svm, "gram_matrix", None)  # not asked for
    pairs = fit(samples, *settings)
    assert torch.equal(pairs.support, whole.support)
    torch.testing.assert_close(pairs.dual, whole.dual, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(pairs.squared_norms, whole.squared_norms, rtol=1e-9, atol=1e-12)
    assert pairs.early_stops == whole.early_stops
    assert iterations == 50 or whole.early_stops == (iterations == 3 and clients > 1)


def test_a_head_refinement_passes_every_hook_on_to_its_base():
    hooks = {name for name in vars(ServerStrategy) if not name.startswith("_")}
    assert hooks - vars(HeadRefinement).keys() == {"needs_classes"}  # it wants a head


@pytest.mark.parametrize("make", [fedaws, turbosvm])
def test_what_a_head_refinement_leaves_to_its_base(make):
    server = make(base=UNIFORM)
    state = ServerState(torch.tensor([1.0]), {})
    assert server.weights(state, senders_of((1, 3))).tolist() == [1, 1]
    server = replace(server, base=option("strategy/server", "mwfed"))
    state = ServerState(torch.tensor([1.0]), {"weights": torch.tensor([1.5, 0.5], dtype=torch.float64)})
    assert server.steps(state, torch.tensor([0, 1]), torch.tensor([4, 4]), round_of(0, 2)).tolist() == [6, 2]
    server = replace(server, base=SCAFFOLD.server)
    state = ServerState(torch.tensor([1.0]), {"control": torch.tensor([2.0])})
    assert {key: each.item() for key, each in server.broadcast(state).items()} == {"model": 1.0, "control": 2.0}
