"""What runs on a GPU keeps its tensors there: every strategy, on a device that is emulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedrun.config.composed import compose
from fedrun.execution.hardware import Hardware
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.sgd import SGD

from ..helpers.elsewhere import MixedDevicesError, emulated
from ..helpers.graphs_on_cpu import GraphsOnCpu
from ..helpers.strategies import FLEXIBLE, FOR_SMALL_MODELS

SETTING = ("rounds=4", "clients_per_round=3", "local.lr=0.05", "local.batch_size=12", "tracking=none")
RDP = "privacy.accountant=rdp"  # quicker than pld

CASES = {strategy: (f"strategy={strategy}",) for strategy in FOR_SMALL_MODELS} | {
    "fedsgd": ("strategy=fedsgd", "local.batch_size=null"),
    "krum": ("strategy=krum", "clients_per_round=5"),
    "maxfl": ("strategy=maxfl", "appeal.steps=5"),
    "mwfed": ("strategy=mwfed", "appeal.steps=5"),
    "maxfl with everything": FLEXIBLE,
    "momentum, clipping and decay": ("local.momentum=0.5", "local.max_gradient_norm=1.0", "local.weight_decay=0.01"),
    "turbosvm on fedadam": ("strategy=turbosvm", "strategy/server@strategy.server.base=fedadam"),
    "noised steps": ("privacy=sample_level", "privacy.noise_multiplier=1.0", RDP),
    "topk with error feedback": ("compression=topk", "compression.fraction=0.1"),
    "quantize": ("compression=quantize", "compression.down=half"),
    "user_level": ("privacy=user_level", "privacy.noise_multiplier=1.0", RDP),
    "secure_sum": ("secure_sum=fixed_point",),
    "sign": ("compression=sign",),
    "randk": ("compression=randk",),
    "sign_flip": ("attack=sign_flip", "attack.share=0.34"),
    "inferred clusters with client states": ("strategy=fedconcat_id", "strategy/client=moon", "clients_per_round=6"),
}


@pytest.fixture
def there(monkeypatch):
    monkeypatch.setattr(Hardware, "prepare", lambda *_: torch.device("cuda", 0))
    monkeypatch.setattr("fedrun.simulation.simulation.CudaGraphs", lambda device: GraphsOnCpu())
    with emulated(monkeypatch) as device:
        yield device


@cache
def composed(overrides: Sequence[str]) -> Experiment:
    return build_experiment(compose([*SETTING, *overrides]).config)


def simulation(make_experiment, overrides, executor, **changes):
    small, experiment = make_experiment(**changes), composed(overrides)
    given = {"dataset": small.dataset, "partition": small.partition, "model": small.model}
    return Simulation(replace(experiment, hardware=replace(experiment.hardware, executor=executor), **given))


def executors(case: str) -> list[str]:
    """The executors that train a case's clients. If clients make plain SGD steps, one is enough: the server strategy
    receives the results of single clients from both.
    """
    strategy = composed(CASES[case]).strategy
    served = case in FOR_SMALL_MODELS and case != "fedavg" and type(strategy) is Strategy
    return ["in_process"] if served and type(strategy.client) is SGD else ["in_process", "vectorized"]


def test_the_emulated_device_tells_mixtures(there):
    x, y = torch.ones(3, device=there), torch.ones(3)
    assert x.device == there and y.device.type == "cpu"
    assert (x + x).device == there and (2 * x).device == there and x[torch.tensor([0, 2])].device == there
    assert x.to("cpu").device.type == "cpu" and y.to(x).device == there
    draw = torch.Generator()
    drawn = (lambda: torch.randn(3, generator=draw, device=there), lambda: x.bernoulli_(0.5, generator=draw))
    for mixed in (
        lambda: x + y,
        lambda: torch.stack([x, y]),
        lambda: torch.stack([x[0], y[0]]),
        lambda: y[x.long()],
        x.numpy,
        *drawn,
    ):
        with pytest.raises(MixedDevicesError):
            mixed()


class Copies(TorchDispatchMode):
    """Counts the copies from the CPU to the emulated device."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if operation is torch.ops.aten._to_copy.default and args[0].device.type == "cpu":
            self.count += kwargs.get("device") == torch.device("cuda", 0)
        return operation(*args, **kwargs)


@pytest.mark.parametrize("strategy", ["fedavg", "fedbabu"])
def test_vectorized_steps_copy_nothing_to_the_device(there, make_experiment, strategy):
    """As many copies for 4 steps of an epoch as for 16; each would make the GPU wait for the CPU."""
    counts = []
    for steps in (4, 16):
        chosen = (f"strategy={strategy}", "local.epochs=null", f"local.steps={steps}", "local.batch_size=1")
        made = simulation(make_experiment, chosen, "vectorized", sizes=(20,) * 6)
        with Copies() as copies:
            made.advance(made.initial())
        counts.append(copies.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("case", CASES)
def test_every_strategy(there, make_experiment, case):
    """Two rounds and what is measured, with the global model on the device and the client states on the CPU."""
    for executor in executors(case):
        made = simulation(make_experiment, CASES[case], executor)
        state = made.initial()
        if made.round_runner(state).executor.name != executor:  # vectorized does not support these clients
            continue
        for _ in range(2):
            state, _ = made.advance(state)
        assert made.test(state)["test/loss"] > 0
        assert state.server.model.device == there
        held = [vector for vectors in state.client_states.held.values() for vector in vectors.values()]
        assert all(vector.device.type == "cpu" for vector in held)


def test_kernels_are_deterministic_only_where_a_run_asks_for_it(monkeypatch):
    """Also in the second run of a process. The run's GPU becomes the current one, which dropout's seed is for."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", (current := []).append)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    threads, enabled = torch.get_num_threads(), []
    try:
        for deterministic in (True, False):
            hardware = Hardware(
                device="cuda" if deterministic else "cuda:1",
                executor="in_process",
                threads=None,
                deterministic=deterministic,
                cuda_graphs=True,
                client_memory_gb=4.0,
                processes="auto",
            )
            hardware.prepare(parallel_jobs=1)
            enabled.append(torch.are_deterministic_algorithms_enabled())
            assert not torch.utils.deterministic.fill_uninitialized_memory
        assert current == [0, 1]
    finally:
        torch.set_deterministic_debug_mode("default")
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.set_num_threads(threads)
    assert enabled == [True, False]
