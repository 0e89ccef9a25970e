"""Benchmarks on a device: rounds against a bare loop on the same device, evaluation, TurboSVM-FL's server step, memory.

Times are wall clock after a synchronisation, median over repetitions that alternate with the baseline's.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torchvision
from interleaved import interleave
from random_images import FEMNIST, random_images

import fedrun
from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Spec, Symbols
from fedrun.data.datasets.in_memory import InMemory
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.partitions.base import Partition
from fedrun.experiment.state import State
from fedrun.models.base import ModelConfig, encoder_and_head
from fedrun.system.randomness import generator

PLAIN = ("tracking=none", "display=none", "local.momentum=0.0", "local.weight_decay=0.0", "evaluation.every=1000000")


@dataclass(frozen=True)
class Sizes(Partition):
    """Consecutive training samples, so many for each client; the rest is one test set."""

    sizes: tuple[int, ...]

    def split(self, dataset: Dataset, seed: int) -> Federation:
        parts = torch.arange(dataset.train_size).split(list(self.sizes))
        test = torch.arange(dataset.train_size, len(dataset.targets))
        return Federation(dataset, ClientIndices.of([p.numpy() for p in parts]), ClientIndices.of([test.numpy()]))


@config_class
class GroupNormResNet18(ModelConfig):
    """torchvision's ResNet-18 with GroupNorm(2) in the place of BatchNorm and a 3x3 stem, for 32x32 images."""

    def check(self, spec: Spec) -> None:
        pass

    def build(self, spec: Spec) -> torch.nn.Sequential:
        network = torchvision.models.resnet18(
            norm_layer=lambda channels: torch.nn.GroupNorm(2, channels), num_classes=spec.classes
        )
        network.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
        network.maxpool = torch.nn.Identity()
        head, network.fc = network.fc, torch.nn.Identity()
        return encoder_and_head(network, head)


def synchronised(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def rounds(
    device: str, dataset: Dataset, sizes: Sequence[int], model: ModelConfig, cohort: int, overrides: Sequence[str]
) -> tuple[Callable[[], object], fedrun.Simulation]:
    """A function that makes one more round of a simulation, and the simulation."""
    composed = fedrun.compose([*PLAIN, f"clients_per_round={cohort}", f"hardware.device={device}", *overrides])
    experiment = fedrun.build_experiment(composed.config)
    experiment = replace(experiment, dataset=InMemory(dataset), partition=Sizes(tuple(sizes)), model=model)
    simulation = fedrun.Simulation(experiment)
    state = simulation.initial()

    def advance() -> None:
        nonlocal state
        state, _ = simulation.advance(state)
        synchronised(device)

    return advance, simulation


def bare_rounds(
    device: str,
    dataset: Dataset,
    sizes: Sequence[int],
    network: torch.nn.Module,
    cohort: int,
    batch_size: int,
    graphs: bool,
) -> Callable[[], object]:
    """One round of FedAvg without a framework, with data and model on the device; ``graphs``: steps are CUDA graphs."""
    network = copy.deepcopy(network).to(device).train()
    inputs, targets = dataset.encoding(dataset.inputs[: dataset.train_size]).to(device), dataset.targets.to(device)
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    parameters = list(network.parameters())
    recorded: dict[int, tuple[Callable[[], object], torch.Tensor, torch.Tensor]] = {}

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(network(x), y), parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-0.01)

    def graphed(x: torch.Tensor, y: torch.Tensor) -> None:
        if len(x) not in recorded:
            start = [parameter.detach().clone() for parameter in parameters]
            still = (x.clone(), y.clone())
            replay = replayed(partial(step, *still))
            with torch.no_grad():
                torch._foreach_copy_(parameters, start)
            recorded[len(x)] = (replay, *still)
        replay, own_x, own_y = recorded[len(x)]
        own_x.copy_(x)
        own_y.copy_(y)
        replay()

    def one_round() -> None:
        start = [parameter.detach().clone() for parameter in parameters]
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for client in range(cohort):
            with torch.no_grad():
                torch._foreach_copy_(parameters, start)
            order = torch.randperm(sizes[client], generator=generator(0, "batches", 0, client))
            own = (order + offsets[client]).to(device)
            for batch in own.split(batch_size):
                (graphed if graphs else step)(inputs[batch], targets[batch])
            with torch.no_grad():
                torch._foreach_add_(total, parameters, alpha=sizes[client] / sum(sizes[:cohort]))
        with torch.no_grad():
            torch._foreach_copy_(parameters, total)
        synchronised(device)

    return one_round


def peak(device: str, work: Callable[[], object]) -> float:
    """GiB of device memory at the peak of some work; NaN on a CPU."""
    if not device.startswith("cuda"):
        work()
        return float("nan")
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated() / 2**30


def compared(
    device: str,
    dataset: Dataset,
    sizes: Sequence[int],
    model: ModelConfig,
    cohorts: Sequence[int],
    batch_size: int,
    variants: Mapping[str, Sequence[str]],
) -> Iterator[dict[str, object]]:
    """Rounds with several settings against the bare loop, for several cohort sizes."""
    network = model.build(dataset.spec)
    pairs = 3
    torch.set_deterministic_debug_mode("default")  # as a check before may have left it; the bare loop comes first
    for cohort in cohorts:
        bare = bare_rounds(device, dataset, sizes, network, cohort, batch_size, graphs=False)
        for name, overrides in variants.items():
            chosen = (f"local.batch_size={batch_size}", "local.epochs=1", "local.lr=0.01", *overrides)
            ours, _ = rounds(device, dataset, sizes, model, cohort, (*chosen, "hardware.deterministic=false"))
            for _ in range(1 if device == "cpu" else 3):  # until the most frequent shapes are recorded
                ours()
            comparison = interleave(ours, bare, pairs)
            median = sorted(comparison.tested)[pairs // 2]
            yield {
                "clients": cohort,
                "what": name,
                "of the bare loop": comparison.ratio,
                "s per round": median,
                "GiB": peak(device, ours),
            }
        if device.startswith("cuda"):  # last: a capture that fails may cost what follows
            graph = bare_rounds(device, dataset, sizes, network, cohort, batch_size, graphs=True)
            comparison = interleave(graph, bare, pairs)
            yield {"clients": cohort, "what": "bare loop, CUDA graphs", "of the bare loop": comparison.ratio}


IN_PROCESS, VECTORIZED = "hardware.executor=in_process", "hardware.executor=vectorized"
VARIANTS = {
    "in process": (IN_PROCESS,),
    "in process, bfloat16": (IN_PROCESS, "local.precision=bfloat16"),
    "vectorised": (VECTORIZED,),
    "vectorised, bfloat16": (VECTORIZED, "local.precision=bfloat16"),
}
WITHOUT_GRAPHS = {"in process, without CUDA graphs": (IN_PROCESS, "hardware.cuda_graphs=false")}


def femnist(device: str, toy: bool) -> Iterator[dict[str, object]]:
    """The LEAF CNN on FEMNIST's shape, 227 samples per client on average, batches of 64."""
    sizes = (20,) * 4 if toy else (140, 180, 205, 227, 227, 250, 274, 313) * 5
    dataset = random_images(sum(sizes) + 10, FEMNIST, sum(sizes))
    option = "mnist_2nn" if toy else "leaf_femnist_cnn"
    model = fedrun.option("model", option)
    variants = {**VARIANTS, **WITHOUT_GRAPHS}
    return compared(device, dataset, sizes, model, (2,) if toy else (8, 32), 10 if toy else 64, variants)


def convolutions(device: str, toy: bool) -> Iterator[dict[str, object]]:
    """The convolutions of one step of the LEAF CNN for 32 clients, without anything else: a lower bound of a step.

    ``grouped`` is what ``torch.vmap`` makes of the clients' own kernels, ``one by one`` visits the clients in a CUDA
    graph, ``unfolded`` makes batched matrix products of them, in TF32 as the convolutions.
    """
    clients, batch = (2, 3) if toy else (32, 64)
    for inputs, outputs, size in ((1, 32, 28), (32, 64, 14)):
        x = torch.randn(batch, clients * inputs, size, size, device=device)
        w = torch.randn(clients * outputs, inputs, 5, 5, device=device)
        y = torch.randn(batch, clients * outputs, size, size, device=device)
        grouped = partial(convolved, x, w, y, clients, inputs > 1)
        own = [
            [part.contiguous(memory_format=torch.channels_last) for part in parts]
            for parts in (x.chunk(clients, 1), w.chunk(clients), y.chunk(clients, 1))
        ]

        def one_by_one(own: list[list[torch.Tensor]] = own, embedded: bool = inputs > 1) -> None:
            for parts in zip(*own, strict=True):
                convolved(*parts, 1, embedded)

        stacked = [part.view(batch, clients, -1, size, size).transpose(0, 1).contiguous() for part in (x, y)]
        kernels = w.view(clients, outputs, -1)
        _, by_kernel = grouped()
        gradient = unfolded(stacked[0], kernels, stacked[1], inputs > 1)[1]
        torch.testing.assert_close(gradient, by_kernel.view_as(gradient), rtol=1e-2, atol=1.0)  # TF32 sums 10⁴ products
        ways = {
            "grouped": grouped,
            "one by one": replayed(one_by_one) if device.startswith("cuda") else one_by_one,
            "unfolded": partial(unfolded, stacked[0], kernels, stacked[1], inputs > 1),
        }
        for what, work in ways.items():
            seconds = []
            for _ in range(8):
                synchronised(device)
                began = time.perf_counter()
                work()
                synchronised(device)
                seconds.append(time.perf_counter() - began)
            yield {"layer": f"{inputs} to {outputs}", "clients": clients, "what": what, "ms": 1e3 * min(seconds)}


def convolved(
    x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, groups: int, embedded: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """A convolution and its gradients; that of its inputs only if they are ``embedded``.

    Returns:
        The outputs, and the kernels' gradients.
    """
    out = torch.nn.functional.conv2d(x, w, padding=2, groups=groups)
    wanted = [embedded, True, False]
    backward = torch.ops.aten.convolution_backward
    return out, backward(y, x, w, None, [1, 1], [2, 2], [1, 1], False, [0, 0], groups, wanted)[1]


def unfolded(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, embedded: bool) -> list[torch.Tensor]:
    """The same convolutions and gradients as products of each client's kernels with columns of pixels.

    Args:
        x: images ``[C, B, I, h, w]``.
        w: kernels ``[C, O, 25 I]``.
        y: gradients of the outputs ``[C, B, O, h, w]``.
        embedded: whether the gradient of the inputs is computed.

    Returns:
        The outputs ``[C, B, O, h w]``, the kernels' gradients ``[C, O, 25 I]`` and, if ``embedded``, those of the
        inputs ``[C B, I, h, w]``.
    """
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    columns = torch.nn.functional.unfold(x.flatten(0, 1), 5, padding=2).unflatten(0, x.shape[:2])  # [C, B, 25 I, h w]
    above = y.flatten(3)
    results = [w[:, None] @ columns, torch.einsum("cbop,cbkp->cok", above, columns)]
    if embedded:
        below = (w.mT[:, None] @ above).flatten(0, 1)
        results.append(torch.nn.functional.fold(below, x.shape[3:], 5, padding=2))
    torch.set_float32_matmul_precision(precision)
    return results


def replayed(work: Callable[[], object]) -> Callable[[], object]:
    """Some work as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def tiny(device: str, toy: bool) -> Iterator[dict[str, object]]:
    """Logistic regression with 60 features, and McMahan's 2NN: 100 of 1 000 clients, batches of 10."""
    for name, spec in (("logistic", Spec((60,), 10)), ("mnist_2nn", Spec((1, 28, 28), 10))):
        sizes = (20,) * (10 if toy else 1000)
        dataset = random_images(sum(sizes) + 10, spec, sum(sizes))
        model, cohort = fedrun.option("model", name), 4 if toy else 100
        variants = {what: chosen for what, chosen in VARIANTS.items() if "bfloat16" not in what}
        for row in compared(device, dataset, sizes, model, (cohort,), 10, variants):
            yield {"model": name, **row}


def resnet(device: str, toy: bool) -> Iterator[dict[str, object]]:
    """ResNet-18 with GroupNorm on CIFAR's shape: users of 50 samples, 50 in a round, batches of 10; and an evaluation,
    which pfl-research's job makes every 10 rounds.
    """
    sizes, tests = ((4,) * 3, 10) if toy else ((50,) * 1000, 10_000)
    dataset, cohort = random_images(sum(sizes) + tests, Spec((3, 32, 32), 10), sum(sizes)), 2 if toy else 50
    yield from compared(device, dataset, sizes, GroupNormResNet18(), (cohort,), 2 if toy else 10, VARIANTS)
    chosen = ("evaluation.batch_size=1024", "hardware.deterministic=false")
    _, simulation = rounds(device, dataset, sizes, GroupNormResNet18(), cohort, chosen)
    state = simulation.initial()
    seconds = []
    for _ in range(5):  # the first ones also record the forward passes
        synchronised(device)
        began = time.perf_counter()
        simulation.test(replace(state, models=(*state.models,)))  # results are kept for the newest tuple of models
        seconds.append(time.perf_counter() - began)
    yield {"what": f"an evaluation of {tests} samples", "s": min(seconds)}


def lstm(device: str, toy: bool) -> Iterator[dict[str, object]]:
    """The LEAF LSTM on Shakespeare's shape, batches of 10."""
    spec, sizes = Spec((80,), 80, vocabulary=80), (4,) * 3 if toy else (300,) * 40
    random, names = torch.Generator().manual_seed(0), tuple(map(str, range(spec.classes)))
    texts = torch.randint(0, 80, (sum(sizes) + 10, 80), dtype=torch.uint8, generator=random)
    targets = torch.randint(0, spec.classes, (len(texts),), generator=random)
    dataset = Dataset(spec, Symbols(), texts, targets, sum(sizes), None, names, "random")
    model = fedrun.option("model", "leaf_shakespeare_lstm")
    cohorts, batch_size = ((2,), 2) if toy else ((10,), 10)
    variants = {name: chosen for name, chosen in {**VARIANTS, **WITHOUT_GRAPHS}.items() if IN_PROCESS in chosen}
    return compared(device, dataset, sizes, model, cohorts, batch_size, variants)  # recurrent models run in process


def evaluation(device: str, toy: bool) -> Iterator[dict[str, object]]:
    """Testing the LEAF CNN against the bare forward passes on data on the device, as a share of their throughput."""
    count, batch = (100, 50) if toy else (80_000, 256)
    dataset = random_images(count + 64, FEMNIST, 64)
    model = fedrun.option("model", "leaf_femnist_cnn")
    for size in (batch, 4 * batch):
        chosen = (f"evaluation.batch_size={size}", "hardware.deterministic=false")
        _, simulation = rounds(device, dataset, (32, 32), model, 2, chosen)
        network = model.build(dataset.spec).to(device).eval()
        inputs, targets = dataset.inputs[64:].to(device), dataset.targets[64:].to(device)

        batches = list(zip(inputs.split(size), targets.split(size), strict=True))

        def bare(network: torch.nn.Module = network, batches: list[tuple[torch.Tensor, ...]] = batches) -> None:
            correct = torch.zeros((), device=device)
            with torch.no_grad():
                for x, y in batches:
                    correct += (network(dataset.encoding(x)).argmax(1) == y).sum()
            correct.item()

        state = simulation.initial()

        def ours(simulation: fedrun.Simulation = simulation, state: State = state) -> None:
            simulation.test(replace(state, models=(*state.models,)))  # results are kept for the newest tuple of models
            synchronised(device)

        comparison = interleave(ours, bare, 5)
        seconds = sorted(comparison.tested)[2]
        yield {"samples": count, "batch": size, "share of the bare throughput": 1 / comparison.ratio, "s": seconds}


def turbosvm(device: str, toy: bool) -> Iterator[dict[str, object]]:
    """The server's step of TurboSVM-FL for 62 classes."""
    for cohort in (2,) if toy else (8, 32):
        sizes = (10,) * cohort if toy else (64,) * cohort
        dataset = random_images(sum(sizes) + 10, FEMNIST, sum(sizes))
        model = fedrun.option("model", "mnist_2nn" if toy else "leaf_femnist_cnn")
        composed = fedrun.compose([*PLAIN, "strategy=turbosvm", f"clients_per_round={cohort}", "rounds=3"])
        experiment = fedrun.build_experiment(composed.config)
        hardware = replace(experiment.hardware, device=device)
        experiment = replace(
            experiment, dataset=InMemory(dataset), partition=Sizes(sizes), model=model, hardware=hardware
        )
        simulation = fedrun.Simulation(experiment)
        state = simulation.initial()
        for _ in range(3):
            state, metrics = simulation.advance(state)
        yield {"clients": cohort, "server step, s": metrics["time/server_s"], "round, s": metrics["time/round_s"]}
