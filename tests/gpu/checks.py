"""Checks on a device: agreement with the CPU, repeatability, resume across devices, several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

import fedrun
from fedrun.config.options import options

SETTING = ("rounds=3", "clients_per_round=5", "local.lr=0.05", "tracking=none", "display=none", "hardware.threads=1")

TOLERANCE = 2e-3
"""Largest relative distance of the models, ‖w − w_cpu‖ / ‖w_cpu − w_0‖, after :data:`SETTING`'s rounds. Kernels add in
another order, which some tens of SGD steps and the square roots of adaptive servers enlarge."""

LOOSE = {"turbosvm": 0.2, "moon_turbosvm": 0.2}
"""Which embeddings become support vectors depends on the last bits (docs/hardware.md)."""


FOR_ADAPTERS = ("fedexlora", "fedit", "fedsalora", "ffalora", "flora")
"""What needs a model with low-rank adapters, which the default model has not."""

NEEDS = {"fedbn": ("model=resnet18_cifar",)}
"""What strategies do not train the default model with."""


def simulated(overrides: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The first model's initial and final vector ``[P]`` on the CPU, and the final test accuracy."""
    experiment = fedrun.build_experiment(fedrun.compose([*SETTING, *overrides]).config)
    simulation = fedrun.Simulation(experiment)
    state = simulation.initial()
    initial = state.models[0].model.cpu().clone()
    while state.round < experiment.rounds:
        state, _ = simulation.advance(state)
    accuracy = simulation.test(state)["test/accuracy"]
    return initial, state.models[0].model.cpu().clone(), accuracy


def agreement(device: str, toy: bool) -> list[dict[str, object]]:
    """Every strategy on the device, by both executors, against the CPU in process."""
    every = [name for name in options("strategy") if name not in FOR_ADAPTERS]
    chosen = ("fedavg", "scaffold", "turbosvm") if toy else every
    both = ("in_process", "vectorized")
    return [row for name in chosen for row in compared(device, name, NEEDS.get(name, ()), both)]


def recurrent(device: str) -> list[dict[str, object]]:
    """LEAF's LSTM on the device against the CPU; also gradients in evaluation mode, which cuDNN does not compute."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("train", "test"):
            write_roles(Path(folder) / "shakespeare" / part / "roles.json")
        setting = (
            "dataset=shakespeare",
            f"data_dir={folder}",
            "dataset.min_samples_after_split=1",
            "dataset.window=20",
            "population.test_share=0.2",
            "population.test_of=random",
            "evaluation.adaptive=false",
            "clients_per_round=2",
            "local.batch_size=8",
        )
        chosen = {"fedavg": (), "scaffold": ("strategy.client.option=I",), "fedala": ()}
        alone = ("in_process",)
        return [row for name, keys in chosen.items() for row in compared(device, name, (*setting, *keys), alone)]


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


def compared(device: str, strategy: str, overrides: Sequence[str], executors: Sequence[str]) -> list[dict[str, object]]:
    """A strategy on the device, by some executors, against the CPU in process."""
    rows: list[dict[str, object]] = []
    chosen = [f"strategy={strategy}", *overrides]
    initial, reference, accuracy = simulated(chosen)
    for executor in executors:
        there = [f"hardware.device={device}", f"hardware.executor={executor}"]
        _, model, measured = simulated([*chosen, *there])
        same_shape = model.shape == reference.shape == initial.shape
        moved = (reference - initial).norm() if same_shape else reference.norm()
        distance = float((model - reference).norm() / moved) if same_shape else float("nan")
        rows.append(
            {
                "strategy": strategy,
                "executor": executor,
                "relative distance": distance,
                "accuracy": measured,
                "accuracy on the CPU": accuracy,
                "ok": distance <= LOOSE.get(strategy, TOLERANCE),
            }
        )
    return rows


def determinism(device: str) -> list[dict[str, object]]:
    """The same run twice gives the same bits, with deterministic kernels."""
    rows: list[dict[str, object]] = []
    for model, dataset in (("mlp", "digits"), ("logistic", "digits")):
        for executor in ("in_process", "vectorized"):
            chosen = [f"dataset={dataset}", f"model={model}", f"hardware.device={device}"]
            runs = [simulated([*chosen, f"hardware.executor={executor}"])[1] for _ in range(2)]
            rows.append({"model": model, "executor": executor, "ok": bool(torch.equal(*runs))})
    return rows


def commanded(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """The ``fedrun`` command in a folder."""
    command = [sys.executable, "-m", "fedrun", *SETTING, *overrides]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def metrics(folder: Path) -> list[dict[str, float]]:
    """The rows of the only run below a folder, without times."""
    (path,) = folder.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


def resume(device: str) -> list[dict[str, object]]:
    """A run that a signal stops on one device continues on the other, and ends like an uninterrupted one."""
    rows: list[dict[str, object]] = []
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
            command = [sys.executable, "-c", stop, *SETTING, *chosen, f"hardware.device={first}"]
            status = subprocess.run(command, cwd=stopped, check=False, capture_output=True).returncode
            ended = commanded(Path(stopped), *chosen, f"hardware.device={second}")
            ours, reference = metrics(Path(stopped)), metrics(Path(whole))
            apart = max(abs(a["test/loss"] - b["test/loss"]) for a, b in zip(ours, reference, strict=True))
            rows.append(
                {
                    "from": first,
                    "to": second,
                    "status of the stopped run": status,
                    "largest difference of test/loss": apart,
                    "ok": status == 143 and ended.returncode == 0 and apart < (1e-3 if first != second else 1e-6),
                }
            )
    return rows


def distributed(device: str) -> list[dict[str, object]]:
    """One process for each GPU (at least one, so that NCCL is used) against one process without torchrun."""
    count = max(1, torch.cuda.device_count()) if device.startswith("cuda") else 2
    rows: list[dict[str, object]] = []
    for strategy in ("fedavg", "scaffold", "fedconcat"):
        chosen = (f"strategy={strategy}", "rounds=4", f"hardware.device={device}")
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as several:
            commanded(Path(one), *chosen)
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
            command = [*torchrun, "-m", "fedrun", *SETTING, "hardware=distributed", *chosen]
            ended = subprocess.run(
                command, cwd=several, check=False, capture_output=True, text=True, env={**os.environ}
            )
            row: dict[str, object] = {"strategy": strategy, "processes": count, "status": ended.returncode}
            if ended.returncode == 0:
                pairs = zip(metrics(Path(several)), metrics(Path(one)), strict=True)
                apart = max(abs(a["test/loss"] - b["test/loss"]) for a, b in pairs)
                row |= {"largest difference of test/loss": apart, "ok": apart < 1e-4}
            else:
                row |= {"ok": False, "error": ended.stderr[-400:]}
            rows.append(row)
    return rows
