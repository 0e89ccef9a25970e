"""A small federation in memory, so that a test can run whole experiments in milliseconds."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch

from fedrun.config.composed import compose
from fedrun.data.datasets.base import Dataset, Scaled, Spec
from fedrun.data.datasets.in_memory import InMemory
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.partitions.base import Partition
from fedrun.execution.executor import Executor
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.models.base import ModelConfig
from fedrun.runs import session
from fedrun.simulation.simulation import Simulation

from .helpers.forked import RUNS, SWEEPS, Fedrun
from .helpers.run_folders import Folders

SIZES = (3, 12, 8, 5, 20, 12)
"""Training samples of the small federation's clients: unequal, with full, short and single batches."""

# The commands that tests start must receive what a shell's background or nohup lets this process ignore.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# They must run this checkout, also if another one is installed.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.getenv("PYTHONPATH")])])

Build = Callable[[Spec], torch.nn.Sequential]
MakeExperiment = Callable[..., Experiment]


@dataclass(frozen=True)
class GivenSizes(Partition):
    """The training samples, dealt out in strides so that no client holds neighbours; the rest is one test set."""

    sizes: tuple[int, ...]

    def split(self, dataset: Dataset, seed: int) -> Federation:
        order = torch.arange(dataset.train_size) * 7 % dataset.train_size  # 7 and the size have no common factor
        parts = [part.numpy() for part in order.split(list(self.sizes))]
        test = torch.arange(dataset.train_size, len(dataset.targets)).numpy()
        return Federation(dataset, ClientIndices.of(parts), ClientIndices.of([test]))


@dataclass(frozen=True)
class GivenModel(ModelConfig):
    """Any network."""

    network: Build

    def check(self, spec: Spec) -> None:
        pass

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return self.network(spec)


@cache
def small_images(train: int, test: int) -> Dataset:
    """Grey 4x4 images of 3 classes that can be learned: each has a bright place of its own; one corner is black."""
    draw = torch.Generator().manual_seed(11)
    count = train + test
    targets = torch.randint(0, 3, (count,), generator=draw)
    images = torch.randint(0, 120, (count, 1, 4, 4), generator=draw)
    images[torch.arange(count), 0, targets, targets] += 120
    images[:, :, 3, 0] = 0
    return Dataset(
        spec=Spec((1, 4, 4), 3),
        encoding=Scaled(255.0),
        inputs=images.to(torch.uint8),
        targets=targets,
        train_size=train,
        users=None,
        class_names=("a", "b", "c"),
        fingerprint="small",
    )


def first_executor(simulation: Simulation) -> Executor:
    """The executor of a simulation's first round."""
    return simulation.round_runner(simulation.initial()).executor


gc.disable()  # while packages are imported and tests collected, which makes objects that all stay


def pytest_collection_finish() -> None:
    gc.freeze()  # no collection looks through them again
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for package in mark.args:
            pytest.importorskip(package)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """PyTorch computes with one thread, unless a test or its run sets another number.

    Tensors are small, and threads that wait for each other would take the cores from the other tests.
    """
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checking() -> Iterator[Fedrun]:
    """Commands that end before anything slow is imported."""
    with Fedrun() as command:
        yield command


@pytest.fixture(scope="session")
def fedrun() -> Iterator[Fedrun]:
    """Commands that run something."""
    # torch.func imports sympy; accounting takes seconds to import; TurboSVM and clusters of labels need scikit-learn
    slow = ("torch.distributed", "sympy", "dp_accounting.rdp", "sklearn.svm", "sklearn.cluster")
    with Fedrun(*RUNS, *SWEEPS, *slow) as command:
        yield command


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without plots, which would take most of the time."""
    monkeypatch.setattr(session, "plot_labels", lambda _, path: path.write_bytes(b""))
    monkeypatch.setattr(session, "plot_curves", lambda _, path, __: path.write_bytes(b""))


@pytest.fixture(scope="session")
def default_experiment() -> Experiment:
    """The embedded default, on one CPU thread."""
    return build_experiment(compose(["hardware.threads=1", "tracking=none"]))


@pytest.fixture(scope="session")
def make_experiment(default_experiment: Experiment) -> MakeExperiment:
    """``make_experiment(strategy=.., model=.., local={"epochs": 2}, rounds=3)``: the small federation, changed.

    ``local`` and ``hardware`` take the fields to change; ``network`` a function from the dataset's spec to a network.
    """

    def make(
        *,
        sizes: Sequence[int] = SIZES,
        dataset: Dataset | None = None,
        network: Build | None = None,
        local: dict[str, object] | None = None,
        hardware: dict[str, object] | None = None,
        **changes: object,
    ) -> Experiment:
        given = {
            "dataset": InMemory(small_images(sum(sizes), 30) if dataset is None else dataset),
            "partition": GivenSizes(tuple(sizes)),
            "local": replace(default_experiment.local, **{"batch_size": 4, **(local or {})}),
            "hardware": replace(default_experiment.hardware, **(hardware or {})),
        }
        if network is not None:
            given["model"] = GivenModel(network)
        return replace(default_experiment, **{**given, **changes})

    return make
