"""Local training on tasks other than classification: executors agree with each other and with a naive loop."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.data.datasets.base import Dataset, Spec, Symbols
from fedrun.data.datasets.in_memory import InMemory
from fedrun.data.samples import Samples
from fedrun.data.tasks.base import SampleResults, Task
from fedrun.data.tasks.multi_label import MultiLabel
from fedrun.data.tasks.regression import Regression
from fedrun.data.tasks.symbols import IGNORED, LanguageModelling
from fedrun.execution.client_measurements import initial_losses
from fedrun.execution.context import CohortJob
from fedrun.execution.in_process import InProcess
from fedrun.execution.vectorized import Vectorized
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.clustering.base import ClusteringRound, Measure
from fedrun.strategies.vectors import MODEL
from fedrun.training.train import full_gradient

from ..conftest import SIZES, MakeExperiment, first_executor, small_images
from ..helpers.quadratic_clients import FEDAVG
from ..helpers.small_networks import convolution, mlp

LENGTH, VOCABULARY = 5, 4


def symbol_by_symbol(spec: Spec) -> nn.Sequential:
    encoder = nn.Sequential(nn.Embedding(VOCABULARY, 6), nn.Tanh())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


def images(task: Task, outputs: int) -> Dataset:
    dataset = small_images(sum(SIZES), 30)
    columns = [(dataset.targets + shift).fmod(3) for shift in range(outputs)]
    targets = torch.stack(columns, 1).float() if isinstance(task, Regression) else torch.stack(columns, 1).clamp_max(1)
    return replace(dataset, spec=Spec((1, 4, 4), outputs, task=task), targets=targets)


def texts(task: Task, outputs: int) -> Dataset:
    draw, count = torch.Generator().manual_seed(3), sum(SIZES) + 30
    targets = torch.randint(0, outputs, (count, LENGTH), generator=draw)
    targets[torch.arange(LENGTH) > torch.randint(0, LENGTH, (count, 1), generator=draw)] = IGNORED
    inputs = torch.randint(0, VOCABULARY, (count, LENGTH), generator=draw).to(torch.uint8)
    spec = Spec((LENGTH,), outputs, VOCABULARY, task)
    return replace(small_images(sum(SIZES), 30), spec=spec, encoding=Symbols(), inputs=inputs, targets=targets)


CASES: dict[str, tuple[Callable[[Task, int], Dataset], Task, int, Callable[[Spec], nn.Sequential]]] = {
    "regression": (images, Regression(mean=(1.0, 1.0), std=(0.5, 2.0)), 2, mlp),
    "regression, convolution": (images, Regression(), 1, convolution),
    "multi-label": (images, MultiLabel(), 3, mlp),
    "multi-label, convolution": (images, MultiLabel(), 3, convolution),
    "language": (texts, LanguageModelling(), VOCABULARY, symbol_by_symbol),
}


@pytest.mark.parametrize("case", CASES)
def test_executors_agree(make_experiment: MakeExperiment, case: str) -> None:
    data, task, outputs, network = CASES[case]
    results = []
    for name, kind in (("in_process", InProcess), ("vectorized", Vectorized)):
        hardware = {"executor": name}
        simulation = Simulation(
            make_experiment(dataset=data(task, outputs), network=network, hardware=hardware, targets=())
        )
        state = simulation.initial()
        assert type(first_executor(simulation)) is kind
        for _ in range(2):
            state, metrics = simulation.advance(state)
        results.append((state.server.model, metrics, simulation.test(state)))
    (model, metrics, tested), (other_model, other_metrics, other_tested) = results
    assert torch.allclose(model, other_model, atol=1e-5)
    assert tested == pytest.approx(other_tested, rel=1e-3)
    assert {f"train/{task.score}", "train/loss"} <= metrics.keys()
    for name in (f"train/{task.score}", "train/loss"):
        assert metrics[name] == pytest.approx(other_metrics[name], rel=1e-4)


@pytest.mark.parametrize("executor", ["in_process", "vectorized", "sample_level"])
def test_training_metrics_of_texts_are_over_their_symbols(make_experiment: MakeExperiment, executor: str) -> None:
    """At a vanishing learning rate they are those of the initial model on all training symbols, counted once each."""
    data, task, outputs, network = CASES["language"]
    changes: dict[str, object] = {"hardware": {"executor": executor}}
    if executor == "sample_level":  # without noise, every sample in its one step
        changes = {"privacy": option("privacy", "sample_level", noise_multiplier=0.0, clip=1.0, sample_share=1.0)}
    local = {"lr": 1e-12, "epochs": 1, "batch_size": 4}
    made = make_experiment(
        dataset=data(task, outputs), network=network, targets=(), clients_per_round=6, local=local, **changes
    )
    simulation = Simulation(made)
    state, metrics = simulation.advance(simulation.initial())
    own = simulation.federation.train.samples
    simulation.network.load(state.server.model)
    with torch.no_grad():
        logits = simulation.network.network.eval()(simulation.dataset.inputs[own].long())
    targets = simulation.dataset.targets[own]
    known = targets != IGNORED
    expected = nn.functional.cross_entropy(logits[known], targets[known]).item()
    assert metrics["train/loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics[f"train/{task.score}"] == pytest.approx((logits.argmax(-1) == targets)[known].double().mean().item())


def naive_loss(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A batch's loss by PyTorch's own functions."""
    if isinstance(task, Regression):
        return nn.functional.mse_loss(outputs, (targets - torch.tensor(task.mean)) / torch.tensor(task.std))
    if isinstance(task, MultiLabel):
        return nn.functional.binary_cross_entropy_with_logits(outputs, targets.float())
    return nn.functional.cross_entropy(outputs.transpose(1, 2), targets, ignore_index=IGNORED)


@pytest.mark.parametrize("case", ["regression", "multi-label", "language"])
def test_one_client_descends_the_batch_loss(make_experiment: MakeExperiment, case: str) -> None:
    data, task, outputs, network = CASES[case]
    dataset = data(task, outputs)
    experiment = make_experiment(
        sizes=(60,), dataset=dataset, network=network, local={"batch_size": None, "epochs": 3, "lr": 0.2},
        clients_per_round=1, targets=(),
    )  # fmt: skip
    simulation = Simulation(experiment)
    state = simulation.initial()
    module = simulation.network.network
    simulation.network.load(state.server.model)
    inputs, targets = dataset.encoding(dataset.inputs[:60]), dataset.targets[:60]
    parameters = list(module.parameters())
    start = [parameter.detach().clone() for parameter in parameters]
    for _ in range(3):
        gradients = torch.autograd.grad(naive_loss(task, module(inputs), targets), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(0.2 * gradient)
    expected = simulation.network.vector.clone()
    for parameter, value in zip(parameters, start, strict=True):
        parameter.data.copy_(value)
    state, _ = simulation.advance(state)
    assert torch.allclose(state.server.model, expected, atol=1e-6)


@dataclass(frozen=True)
class WeightedSquares(Task):
    """Targets ``[n, 2]`` are a number and the sample's weight."""

    measures: ClassVar[tuple[str, ...]] = ("square_error",)

    def check_targets(self, targets: torch.Tensor, outputs: int, where: str) -> None:
        """All are allowed."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - targets[:, 0]).square()

    def weights(self, targets: torch.Tensor) -> torch.Tensor:
        return targets[:, 1]

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs

    def scores(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.loss(predictions, targets)

    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        return {"square_error": results.mean_score}


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_weights_count_in_relation_to_each_other(make_experiment: MakeExperiment, executor: str) -> None:
    """As shares that sum to less than 1 in a batch, or a thousand times as large; also in a gradient of all samples."""
    hardware, models, gradients = {"executor": executor}, [], []
    for scale in (0.002, 2.0):
        data = images(Regression(), 2)
        targets = torch.stack([data.targets[:, 0], scale * (1 + data.targets[:, 1])], 1)
        data = replace(data, spec=Spec((1, 4, 4), 1, task=WeightedSquares()), targets=targets)
        simulation = Simulation(make_experiment(dataset=data, network=mlp, targets=(), hardware=hardware))
        models.append(simulation.advance(simulation.initial())[0].server.model)
        simulation.network.load(models[0])
        gradients.append(full_gradient(simulation.network, Samples.of(data, torch.device("cpu")), torch.arange(9), 4))
    torch.testing.assert_close(models[0], models[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", ["fedavg", "ditto"])
def test_a_client_whose_samples_have_no_weight_has_the_loss_of_its_training(
    make_experiment: MakeExperiment, strategy: str
) -> None:
    """0, as without labels: in place of NaN, the largest number of a sort, by which the client always took part."""
    data = images(Regression(), 2)
    data = replace(data, spec=Spec((1, 4, 4), 1, task=WeightedSquares()))
    rule = option("participation", "power_of_choice", candidates=6.0)
    experiment = make_experiment(
        dataset=data,
        network=mlp,
        targets=(),
        clients_per_round=5,
        participation=rule,
        strategy=Strategy(client=option("strategy/client", strategy.replace("fedavg", "sgd")), server=FEDAVG),
    )
    unlabelled = Simulation(experiment).federation.train[4]
    targets = data.targets.clone()
    targets[unlabelled, 1] = 0.0
    simulation = Simulation(replace(experiment, dataset=InMemory(replace(data, targets=targets))))
    state, _ = simulation.advance(simulation.initial())
    assert sorted(simulation.uploads(state).clients.tolist()) == [0, 1, 2, 3, 5]
    context = first_executor(simulation).context
    job = CohortJob(torch.arange(6), 0, {MODEL: state.server.model}, state.client_states)
    adapting = replace(context, client=option("strategy/client", "maxfl", tuning_steps=1))
    for measured in (context, adapting):
        reported = initial_losses(measured, job).flatten()
        assert reported[4] == 0
        assert (reported[[0, 1, 2, 3, 5]] > 0).all()


def text_simulation(make_experiment: MakeExperiment) -> Simulation:
    data, task, outputs, network = CASES["language"]
    return Simulation(make_experiment(dataset=data(task, outputs), network=network, targets=()))


def loss_of_symbols(simulation: Simulation, model: torch.Tensor, client: int) -> float:
    """The mean over all symbols of a client's training texts by PyTorch's own function, whatever the texts' lengths."""
    own = simulation.federation.train[client]
    simulation.network.load(model)
    with torch.no_grad():
        outputs = simulation.network.network.eval()(simulation.dataset.inputs[own].long())
    return naive_loss(LanguageModelling(), outputs, simulation.dataset.targets[own]).item()


def test_ifca_chooses_by_the_loss_of_all_symbols(make_experiment: MakeExperiment) -> None:
    simulation = text_simulation(make_experiment)
    context, draw = first_executor(simulation).context, torch.Generator().manual_seed(0)
    cohort, unassigned = torch.arange(6), torch.zeros(6, 2, dtype=torch.float64)
    by_text = 0

    def query(clients: torch.Tensor, question: Measure) -> torch.Tensor:
        return torch.stack([question(client) for client in clients.tolist()])

    for _ in range(20):
        models = [torch.randn(simulation.network.layout.size, generator=draw) for _ in range(2)]
        round = ClusteringRound(0, cohort, models, unassigned, ClientStates(), query)
        found = option("strategy/clustering", "ifca", clusters=2).assign(context, round).membership.argmax(1).tolist()
        losses = [[loss_of_symbols(simulation, model, client) for model in models] for client in range(6)]
        assert found == [int(second < first) for first, second in losses]
        texts = [[context.results(model, client).losses.mean() for model in models] for client in range(6)]
        by_text += sum(choice != int(second < first) for choice, (first, second) in zip(found, texts, strict=True))
    assert by_text  # long texts count more than short ones


def test_maxfls_clients_report_the_loss_of_all_symbols(make_experiment: MakeExperiment) -> None:
    """Before and after local tuning, here with steps of almost no length."""
    simulation = text_simulation(make_experiment)
    context, state = first_executor(simulation).context, simulation.initial()
    job = CohortJob(torch.arange(6), 0, {MODEL: state.server.model}, state.client_states)
    expected = [loss_of_symbols(simulation, state.server.model, client) for client in range(6)]
    for steps in (0, 1):
        client = option("strategy/client", "maxfl", tuning_steps=steps)
        tuned = replace(context, client=client, local=replace(context.local, lr=1e-9))
        assert initial_losses(tuned, job).flatten().tolist() == pytest.approx(expected, rel=1e-5)
