"""Checks on a device: agreement with the CPU, repeatability, resume across devices, several processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

import fedrun
from fedrun.config.options import options
from fedrun.data.datasets.base import Spec
from fedrun.system.cores import cores

SETTING = ("rounds=3", "clients_per_round=5", "local.lr=0.05", "tracking=none", "display=none", "hardware.threads=1")

TOLERANCE = 2e-3
"""Largest relative distance of the models, ‖w − w_cpu‖ / ‖w_cpu − w_0‖, after :data:`SETTING`'s rounds. Kernels add in
another order, which some tens of SGD steps and the square roots of adaptive servers enlarge."""

LOOSE = {"turbosvm": 0.2, "turbosvm_strict": 0.2, "moon_turbosvm": 0.2}
"""Which embeddings become support vectors depends on the last bits (docs/hardware.md)."""


FOR_ADAPTERS = ("fedexlora", "fedit", "fedsalora", "ffalora", "flora")
"""What needs a model with low-rank adapters, which the default model has not."""

NEEDS = {"fedbn": ("model=custom", "model.target=checks.batch_norm_network")}
"""What strategies do not train the default model with."""

SECONDS = 120.0
"""The longest time of a command, so that one that hangs does not cost all other results."""


def batch_norm_network(spec: Spec) -> torch.nn.Module:
    """A network with batch normalisation for the images of digits."""
    layers = torch.nn.Conv2d(spec.input_shape[0], 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
    return torch.nn.Sequential(*layers, torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(128, spec.classes))


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation, on the CPU.

    Attributes:
        initial: the first model before the first round, ``[P]``.
        models: all models after the last round, one after the other.
        states: all vectors of the clients' states, one after the other.
        accuracy: of the last test.
    """

    initial: torch.Tensor
    models: torch.Tensor
    states: torch.Tensor
    accuracy: float

    def apart(self, reference: Simulated) -> float:
        """The larger relative distance from a reference: of the models, by their way in the simulation (by their norm
        if it ended with others than it began with), and of the clients' states, by their norm.
        """
        way = reference.models
        if way.shape == reference.initial.shape:
            way = way - reference.initial
        models = _relative(self.models, reference.models, way)
        return max(models, _relative(self.states, reference.states, reference.states))


def _relative(vector: torch.Tensor, reference: torch.Tensor, scale: torch.Tensor) -> float:
    """‖vector − reference‖ / ‖scale‖; 0 for equal vectors, infinity for vectors of different lengths."""
    if vector.shape != reference.shape:
        return float("inf")
    return 0.0 if torch.equal(vector, reference) else float((vector - reference).norm() / scale.norm())


def simulated(overrides: Sequence[str]) -> Simulated:
    """The result of :data:`SETTING` with these changes. Convolutions on a GPU compute in float32 instead of TF32."""
    experiment = fedrun.build_experiment(fedrun.compose([*SETTING, *overrides]).config)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        simulation = fedrun.Simulation(experiment)
        state = simulation.initial()
        initial = state.models[0].model.cpu().clone()
        while state.round < experiment.rounds:
            state, _ = simulation.advance(state)
        accuracy = simulation.test(state)["test/accuracy"]
    held = state.client_states.held
    vectors = [held[client][name] for client in sorted(held) for name in sorted(held[client])]
    states = torch.cat([torch.zeros(0), *vectors])
    return Simulated(initial, torch.cat([server.model.cpu() for server in state.models]), states, accuracy)


def agreement(device: str, toy: bool) -> Iterator[dict[str, object]]:
    """Every strategy on the device, by both executors, against the CPU in process; several strategies at once."""
    every = [name for name in options("strategy") if name not in FOR_ADAPTERS]
    chosen = ("fedavg", "turbosvm", "fedconcat") if toy else tuple(every)
    if toy:
        for strategy in chosen:
            yield from _agreement(device, strategy)
        return
    with ProcessPoolExecutor(max(1, min(8, cores() // 2)), get_context("spawn")) as pool:
        for rows in pool.map(partial(_agreement, device), chosen):
            yield from rows


def _agreement(device: str, strategy: str) -> list[dict[str, object]]:
    """The rows of one strategy in :func:`agreement`."""
    try:
        return list(compared(device, strategy, NEEDS.get(strategy, ()), ("in_process", "vectorized")))
    except Exception as error:  # one strategy must not cost the results of the others
        return [{"strategy": strategy, "ok": False, "error": f"{type(error).__name__}: {error}"}]


def recurrent(device: str, toy: bool) -> Iterator[dict[str, object]]:
    """LEAF's LSTM on the device against the CPU; also gradients in evaluation mode, which cuDNN does not compute."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("train", "test"):
            write_roles(Path(folder) / "shakespeare" / part / "roles.json")
        setting = (
            "dataset=shakespeare",
            f"data_dir={folder}",
            "dataset.min_samples_after_split=1",
            f"dataset.window={4 if toy else 20}",
            "population.test_share=0.2",
            "population.test_of=random",
            "evaluation.adaptive=false",
            "clients_per_round=2",
            "local.batch_size=8",
        )
        chosen = {"fedavg": (), "scaffold": ("strategy.client.option=I",), "fedala": ()}
        for name, keys in chosen.items():
            yield from compared(device, name, (*setting, *keys), ("in_process",))


def write_roles(path: Path) -> None:
    """A file of LEAF's Shakespeare with a few roles, whose texts repeat a sentence."""
    users = {}
    for role, sentence in enumerate(
        ("to be or not to be, ", "so are they all, ", "the rest is silence. ", "i am dying, ")
    ):
        text = sentence * 12
        x, y = zip(*((text[k : k + 80], text[k + 80]) for k in range(role, role + 40)), strict=True)
        users[f"role {role}"] = {"x": x, "y": y}
    counts = [len(data["y"]) for data in users.values()]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": users}), encoding="utf-8")


def compared(
    device: str, strategy: str, overrides: Sequence[str], executors: Sequence[str]
) -> Iterator[dict[str, object]]:
    """A strategy on the device, by some executors, against the CPU in process."""
    chosen = [f"strategy={strategy}", *overrides]
    reference = simulated(chosen)
    for executor in executors:
        result = simulated([*chosen, f"hardware.device={device}", f"hardware.executor={executor}"])
        distance = result.apart(reference)
        yield {
            "strategy": strategy,
            "executor": executor,
            "relative distance": distance,
            "accuracy": result.accuracy,
            "accuracy on the CPU": reference.accuracy,
            "ok": distance <= LOOSE.get(strategy, TOLERANCE),
        }


def determinism(device: str) -> Iterator[dict[str, object]]:
    """The same run twice gives the same bits, with deterministic kernels; also without CUDA graphs."""
    for model in (("model=mlp",), ("model=mlp", "model.dropout=0.5"), ("model=logistic",)):
        for executor in ("in_process", "vectorized"):
            chosen = [*model, f"hardware.device={device}", f"hardware.executor={executor}"]
            first, second = (simulated(chosen).models for _ in range(2))
            yield {"model": " ".join(model), "executor": executor, "ok": torch.equal(first, second)}
            if executor == "in_process":
                plain = simulated([*chosen, "hardware.cuda_graphs=false"]).models
                what = "in_process, against no CUDA graphs"
                yield {"model": " ".join(model), "executor": what, "ok": torch.equal(first, plain)}


def commanded(folder: Path, *overrides: str, start: Sequence[str] = ("-m", "fedrun")) -> int:
    """The exit status of the ``fedrun`` command, started by Python with these arguments, in a folder.

    Raises:
        RuntimeError: it failed, with the end of what it said.
    """
    command = [sys.executable, *start, *SETTING, *overrides]
    ended = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=SECONDS)
    if ended.returncode not in (0, 128 + signal.SIGTERM):
        raise RuntimeError(f"status {ended.returncode}: {ended.stderr[-3000:]}")
    return ended.returncode


def metrics(folder: Path) -> list[dict[str, float]]:
    """The rows of the only run below a folder, without times."""
    (path,) = folder.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


def resume(device: str) -> Iterator[dict[str, object]]:
    """A run that a signal stops on one device continues on the other, and ends like an uninterrupted one."""
    stop = (
        "import os, signal, sys\n"
        "from fedrun.simulation.simulation import Simulation\n"
        "real, calls = Simulation.advance, [0]\n"
        "def advance(self, *a, **k):\n"
        "    calls[0] += 1\n"
        "    if calls[0] == 3: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return real(self, *a, **k)\n"
        "Simulation.advance = advance\n"
        "from fedrun.cli.main import main\n"
        "main()\n"
    )
    chosen = ("strategy=scaffold", "rounds=6", "checkpoint_seconds=0")
    for first, second in ((device, "cpu"), ("cpu", device), (device, device)):
        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as stopped:
            commanded(Path(whole), *chosen, f"hardware.device={second}")
            status = commanded(Path(stopped), *chosen, f"hardware.device={first}", start=("-c", stop))
            commanded(Path(stopped), *chosen, f"hardware.device={second}")
            ours, reference = metrics(Path(stopped)), metrics(Path(whole))
            apart = max(abs(a["test/loss"] - b["test/loss"]) for a, b in zip(ours, reference, strict=True))
            yield {
                "from": first,
                "to": second,
                "status of the stopped run": status,
                "largest difference of test/loss": apart,
                "ok": status == 128 + signal.SIGTERM and apart < (1e-3 if first != second else 1e-6),
            }


def distributed(device: str) -> Iterator[dict[str, object]]:
    """One process for each GPU against one process without torchrun; first NCCL's sum in a group of one process,
    because a run of one process makes no sums.
    """
    yield {"what": "NCCL's sum" if device.startswith("cuda") else "gloo's sum", "ok": _sum_of_one(device)}
    count = max(1, torch.cuda.device_count()) if device.startswith("cuda") else 2
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), "-m", "fedrun")
    for strategy in ("fedavg", "scaffold", "fedconcat"):
        chosen = (f"strategy={strategy}", "rounds=4", f"hardware.device={device}")
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as several:
            commanded(Path(one), *chosen)
            commanded(Path(several), *chosen, start=torchrun)
            pairs = zip(metrics(Path(several)), metrics(Path(one)), strict=True)
            apart = max(abs(a["test/loss"] - b["test/loss"]) for a, b in pairs)
            yield {
                "what": strategy,
                "processes": count,
                "largest difference of test/loss": apart,
                "ok": apart < 1e-4,
            }


def _sum_of_one(device: str) -> bool:
    """Whether a vector on the device is its own sum over a group of one process."""
    program = (
        "import sys, torch\n"
        "from torch.distributed import HashStore, init_process_group\n"
        "from fedrun.execution.ranks import Ranks\n"
        "store = HashStore()\n"
        "init_process_group('gloo', store=store, rank=0, world_size=1)\n"
        "vector = torch.arange(5.0, device=sys.argv[1])\n"
        "Ranks(0, 2, store=store).all_reduce(vector)\n"  # of one rank it would return at once
        "assert vector.tolist() == [0, 1, 2, 3, 4], vector\n"
    )
    command = [sys.executable, "-c", program, device]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
    if ended.returncode:
        raise RuntimeError(ended.stderr[-800:])
    return True
