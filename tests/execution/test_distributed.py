"""Runs spread over processes: the numbers of one process, one voice, and no rank's death costs more than a round."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch
from safetensors.torch import load_file

from fedrun.execution.context import CohortJob
from fedrun.execution.distributed_cohort import DistributedCohort, balanced
from fedrun.execution.ranks import RankLostError, Ranks
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.server import CohortUpdate
from fedrun.strategies.vectors import MODEL

from ..conftest import first_executor
from ..helpers.forked import Ended, Fedrun

REPOSITORY = Path(__file__).parents[2]
HERE = REPOSITORY / "tests" / "helpers"

SMALL = (
    "rounds=3",
    "model=logistic",
    "partition.clients=7",
    "local.batch_size=32",
    "hardware.threads=1",
    "tracking=none",
    "display=none",
    "checkpoint_seconds=0",
)


@pytest.fixture(scope="module")
def alone(fedrun: Fedrun, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``alone("strategy=scaffold", ...)``: the folder of that run in one process."""
    known: dict[tuple[str, ...], Path] = {}

    def ran(*chosen: str) -> Path:
        if chosen not in known:
            folder = tmp_path_factory.mktemp("alone")
            assert fedrun(*SMALL, *chosen, folder=folder).status == 0
            known[chosen] = the_run(folder)
        return known[chosen]

    return ran


def the_run(folder: Path) -> Path:
    (found,) = folder.glob("outputs/*/*/*/*/seed=0")
    return found


def statuses(ended: list[Ended]) -> list[int]:
    return [each.status for each in ended]


def said(ended: Ended) -> list[str]:
    """fedrun's own lines of complaint; PyTorch's store has others when the process dies in which it lies."""
    return [line for line in ended.err.splitlines() if line.startswith("fedrun: ")]


def rows(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in found]


def assert_same(run: Path, other: Path) -> None:
    """The same metrics, model and clients to 1e-6, and clients in the same clusters."""
    assert len(rows(run)) == len(rows(other)) >= 4
    for row, expected in zip(rows(run), rows(other), strict=True):
        assert row == pytest.approx(expected, rel=1e-6, abs=1e-6)
    model, reference = load_file(run / "model.safetensors"), load_file(other / "model.safetensors")
    torch.testing.assert_close(model, reference, rtol=1e-5, atol=1e-6)
    assert (run / "checkpoint.pt").stat().st_size < 1.1 * (other / "checkpoint.pt").stat().st_size
    membership, others = (torch.load(each / "checkpoint.pt")["membership"] for each in (run, other))
    assert membership is others is None or torch.equal(membership, others)
    clients, others = (pyarrow.parquet.read_table(each / "clients.parquet").to_pylist() for each in (run, other))
    for client, expected in zip(clients, others, strict=True):
        for name in ("client", "evaluated_on"):
            assert client.pop(name) == expected.pop(name)
        nothing = {name for name, value in client.items() if value is None}
        assert nothing == {name for name, value in expected.items() if value is None}
        assert [client[name] for name in client.keys() - nothing] == pytest.approx(
            [expected[name] for name in client.keys() - nothing], rel=1e-6, abs=1e-6
        )


CLUSTERS = ("strategy.clustering.clusters=3",)
NEAREST = ("compression.rounding=nearest", "compression.memory=client", "compression.bits=3")
APPEAL = ("appeal=warmup", "appeal.steps=5", "population.test_share=0.3", "population.unseen_clients=2")


FURTHER = [
    (2, ("strategy=feddisco",)),  # weighs by the whole cohort
    (2, ("attack=ipm", "attack.share=0.3")),
    (3, ("strategy=fedexp", "strategy/client=fedprox", "clients_per_round=2")),  # measures every client's model
    (2, ("strategy=qffl", "attack=gaussian", "attack.share=0.3")),
    (2, ("strategy=norm_clipping",)),  # sees every client's whole model, and builds its next one in the mean's place
    (2, ("strategy=solo", "clients_per_round=2")),
    (2, ("strategy=ditto", "population.test_share=0.3")),
    (2, ("model=mlp", "strategy=fedrep", "population.test_share=0.3")),
    (2, ("strategy=fedala", "population.test_share=0.3")),
    (3, ("strategy=fedamp", "population.test_share=0.3")),  # sends each client another model
    (3, ("strategy=fedumf", "clients_per_round=3")),
    (3, ("strategy=ifca", "clients_per_round=5", *CLUSTERS)),
    (3, ("strategy=fesem", "clients_per_round=5", *CLUSTERS)),
    (3, ("strategy=fedconcat_id", "strategy.post_training.rounds=1", *CLUSTERS)),
    (2, ("strategy=pfedfda", "population.test_share=0.3", "model=mlp", "local.lr=0.003")),
]


@pytest.mark.parametrize(
    ("ranks", "chosen"),
    [
        *(pytest.param(*case, marks=pytest.mark.slow) for case in FURTHER),
        (2, ("strategy=fedavg", "hardware.executor=vectorized", "hardware.processes=auto")),
        (3, ("strategy=fedavg", "clients_per_round=2")),  # one rank has nothing to do
        (2, ("strategy=scaffold",)),
        (3, ("strategy=turbosvm", "hardware.executor=in_process")),
        (2, ("strategy=median",)),  # sees every client's whole model
        (2, ("strategy=maxfl", "participation=flexible", "evaluation.tuning_steps=2", *APPEAL)),
        (2, ("strategy=scaffold", "compression=topk", "compression.fraction=0.1", "compression.down=half")),
        (
            3,
            (
                "privacy=user_level_adaptive",
                "privacy.noise_multiplier=0.3",
                "privacy.count_noise=1.0",
                "privacy.accountant=rdp",
            ),
        ),
        (
            2,
            (
                "strategy=fedprox",
                "privacy=sample_level",
                "privacy.noise_multiplier=1.0",
                "privacy.sample_share=0.3",
                "privacy.accountant=rdp",
            ),
        ),
        (3, ("participation=oort", "clock=lognormal", "clients_per_round=4")),  # a history of all ranks' clients
        (2, ("strategy=solo", "population.test_share=0.3")),
        (3, ("model=mlp", "strategy=fedper", "clients_per_round=3", "evaluation.precision=bfloat16")),
        (2, ("strategy=apfl", "population.test_share=0.3", "hardware.executor=vectorized")),
        (3, ("strategy=fedproto", "model=mlp", "clients_per_round=2", "population.test_share=0.3")),
        (3, ("strategy=feddyn", "clients_per_round=2", "evaluation.client_means=true")),
        (2, ("strategy=ifca", "population.test_share=0.3", "strategy/server=median", *CLUSTERS)),
        (3, ("strategy=fedsoft", "clients_per_round=2", "strategy.clustering.vote=reshuffled", *CLUSTERS)),
        (2, ("strategy=fedconcat_ib", "hardware.executor=vectorized", *CLUSTERS)),
    ],
    ids=lambda value: value if isinstance(value, int) else " ".join(value),
)
def test_several_processes_compute_what_one_does(
    fedrun: Fedrun, alone: Any, tmp_path: Path, ranks: int, chosen: tuple[str, ...]
) -> None:
    ended = fedrun.together(ranks, *SMALL, *chosen, folder=tmp_path)
    assert statuses(ended) == [0] * ranks, ended[0].err
    assert_same(the_run(tmp_path), alone(*chosen))
    assert "complete" not in ended[1].out
    assert ended[1].out == ended[1].err == ""


def test_ranks_meet_before_torch_is_loaded() -> None:
    """As on the command line, where it is deferred until it is used."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    code = """
from fedrun.system.lazy_import import lazy_import
lazy_import("torch")
from fedrun.execution.launched_ranks import join
ranks = join()
print(ranks.all_gather("here"))
ranks.leave()
"""
    torchruns = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, env={**os.environ, **torchruns}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, "['here']\n"), ended.stderr


def test_a_rank_by_itself(fedrun: Fedrun, alone: Any, tmp_path: Path) -> None:
    assert statuses(fedrun.together(1, *SMALL, folder=tmp_path)) == [0]
    run, other = the_run(tmp_path), alone()
    assert rows(run) == rows(other)
    assert (run / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_run_goes_on_after_a_rank_was_killed(fedrun: Fedrun, tmp_path: Path, killed: int) -> None:
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    undisturbed.mkdir(), disturbed.mkdir()
    command = (*SMALL, "strategy=scaffold")
    assert statuses(fedrun.together(2, *command, folder=undisturbed)) == [0, 0]
    death = ("fedrun.simulation.simulation:Simulation", "advance", 3, 0)
    ended = fedrun.together(2, *command, folder=disturbed, kill_at=death, killed=killed)
    assert sorted(statuses(ended)) == [-9, 1]
    assert "another rank was lost" in ended[1 - killed].err
    assert len(said(ended[1 - killed])) == 1
    assert statuses(fedrun.together(2, *command, folder=disturbed)) == [0, 0]
    run, other = the_run(disturbed), the_run(undisturbed)
    assert rows(run) == rows(other)
    assert (run / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "chosen",
    [
        ("strategy=fedumf", "clients_per_round=3"),
        # One client per round: the other ranks take part in computing thresholds.
        ("strategy=maxfl", "clients_per_round=1", "appeal=warmup", "appeal.steps=2"),
        pytest.param(("strategy=fedsoft", "clients_per_round=5", *CLUSTERS), marks=pytest.mark.slow),
        ("strategy=fedconcat_id", "clients_per_round=5", "strategy.post_training.rounds=1", *CLUSTERS),
    ],
    ids=" ".join,
)
def test_any_number_of_ranks_takes_up_what_another_has_left(
    fedrun: Fedrun, alone: Any, tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    command = (*SMALL, *chosen)
    death = ("fedrun.simulation.simulation:Simulation", "advance", 2, 0)
    for ranks in (3, 2):
        assert -9 in statuses(fedrun.together(ranks, *command, folder=tmp_path, kill_at=death, killed=1))
    run = the_run(tmp_path)
    assert len(rows(run)) == 3  # before the first round and after two
    assert fedrun(*command, folder=tmp_path).status == 0
    assert_same(run, alone(*chosen))


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen",
    [
        ("strategy=fedconcat_fesem",),  # clients' last models are kept
        # Clients keep errors in both phases. Steps are as many for all clients in the first phase only, so that the
        # phases divide the clients among the ranks differently.
        ("strategy=fedconcat", "local.epochs=null", "local.steps=4", "compression=quantize", *NEAREST),
    ],
    ids=" ".join,
)
def test_each_stage_is_taken_up_where_it_was_left(
    fedrun: Fedrun, alone: Any, tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    """Two rounds of clusters, and two of the classifier on top."""
    stages = (*chosen, "strategy.post_training.rounds=2", "rounds=4", "clients_per_round=4", *CLUSTERS)
    deaths = [
        (
            3,
            ("fedrun.execution.distributed_cohort:DistributedCohort", "combine", 2, 0),
        ),  # when the second round has been trained
        (2, ("fedrun.strategies.fedconcat:Classifier", "next_phase", 1, 0)),  # when the second phase is made
        (3, ("fedrun.execution.distributed_cohort:DistributedCohort", "combine", 2, 0)),  # in its second round
    ]
    for done, (ranks, death) in enumerate(deaths, start=1):
        ended = fedrun.together(ranks, *SMALL, *stages, folder=tmp_path, kill_at=death, killed=ranks - 1)
        assert sorted(statuses(ended)) == [-9, *[1] * (ranks - 1)]
        assert [row["round"] for row in rows(the_run(tmp_path))] == list(range(done + 1))
    assert statuses(fedrun.together(2, *SMALL, *stages, folder=tmp_path)) == [0, 0]
    assert_same(the_run(tmp_path), alone(*stages))


def test_client_states_that_lie_in_files(fedrun: Fedrun, alone: Any, tmp_path: Path) -> None:
    command = (*SMALL, "strategy=scaffold", "hardware.client_memory_gb=0")
    death = ("fedrun.simulation.simulation:Simulation", "advance", 3, 0)
    fedrun.together(3, *command, folder=tmp_path, kill_at=death, killed=2)
    assert statuses(fedrun.together(2, *command, folder=tmp_path)) == [0, 0]
    assert_same(the_run(tmp_path), alone("strategy=scaffold"))


@pytest.mark.parametrize(("asked", "number"), [(1, signal.SIGTERM), (0, signal.SIGINT)])
def test_when_one_rank_is_asked_to_stop_all_stop_after_the_round(
    fedrun: Fedrun, alone: Any, tmp_path: Path, asked: int, number: signal.Signals
) -> None:
    """Also the client states of the other rank are in the checkpoint, and nothing was due before."""
    command = (*SMALL, "strategy=scaffold", "checkpoint_seconds=1000")
    moment = ("fedrun.simulation.simulation:Simulation", "advance", 2, 0)
    ended = fedrun.together(2, *command, folder=tmp_path, kill_at=moment, killed=asked, kill_with=number)
    assert statuses(ended) == [128 + number] * 2
    assert ended[0].err == (
        f"fedrun: stopped by {number.name} after round 2; the same command (without overwrite=true) continues\n"
    )
    assert ended[1].err == ""
    assert [row["round"] for row in rows(the_run(tmp_path))] == [0, 1, 2]
    ended = fedrun.together(2, *command, folder=tmp_path, kill_at=moment)
    assert statuses(ended) == [0, 0]  # it has made one round: the second call did not come
    assert_same(the_run(tmp_path), alone("strategy=scaffold"))


def test_a_signal_in_the_last_round_changes_nothing(fedrun: Fedrun, alone: Any, tmp_path: Path) -> None:
    moment = ("fedrun.simulation.simulation:Simulation", "advance", 3, 0)
    ended = fedrun.together(2, *SMALL, folder=tmp_path, kill_at=moment, kill_with=signal.SIGTERM)
    assert statuses(ended) == [0, 0]
    assert_same(the_run(tmp_path), alone())


def test_patience_with_a_round_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrun.execution.ranks.SECONDS_TO_END_ROUND", 0.1)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    try:
        ranks = Ranks()
        ranks.handle_signals()
        assert ranks.after_round(True) == (True, 0)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)  # who asks twice is not in a greater hurry
        assert ranks.after_round(False) == (False, signal.SIGTERM)
        time.sleep(0.2)
        ranks = Ranks()
        ranks.handle_signals()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(RankLostError, match="stopped within a round, by a signal or because another rank was lost"):
            time.sleep(5)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_a_finished_run_is_shown_once(fedrun: Fedrun, tmp_path: Path) -> None:
    for _ in range(2):
        ended = fedrun.together(2, *SMALL, "rounds=1", folder=tmp_path)
        assert statuses(ended) == [0, 0]
    assert "finished earlier" in ended[0].out
    assert ended[1].out == ""


@pytest.mark.parametrize(
    ("chosen", "extra", "line"),
    [
        ("local.batch_size=0", (), "local.batch_size=0: allowed: an integer, at least 1; or null"),
        ("strategy=none", (), "strategy=none: no such option; allowed: "),
        ("clients_per_round=8", (), "clients_per_round=8: the federation has 7 clients; allowed: 1 to 7"),
        ("seed=0", ((), ("hardware.device=cuda",)), "rank 1: hardware.device=cuda: PyTorch sees 0 CUDA devices"),
        ("seed=0", ((), ("local.lr=0.2",)), "rank 1 has the configuration "),
        (
            "hardware.processes=3",
            (),
            "hardware.processes=3: the number of this run's processes is 2; allowed: 1 or auto in sweeps",
        ),
        ("-m", ((), ()), "torchrun starts the processes of a single run; start a sweep's runs one by one"),
    ],
)
def test_what_cannot_be_used_is_said_once(
    fedrun: Fedrun, tmp_path: Path, chosen: str, extra: tuple[tuple[str, ...], ...], line: str
) -> None:
    ended = fedrun.together(2, *SMALL, chosen, folder=tmp_path, extra=extra)
    assert statuses(ended) == [2, 2]
    assert len(ended[0].err.splitlines()) == 1
    assert ended[0].err.startswith(f"fedrun: {line}")
    assert ended[1].err == ""
    assert list(tmp_path.rglob("metrics.jsonl")) == []


def test_a_diverging_run_ends_on_every_rank(fedrun: Fedrun, tmp_path: Path) -> None:
    ended = fedrun.together(2, *SMALL, "local.lr=1e30", "local.weight_decay=1e30", folder=tmp_path)
    assert statuses(ended) == [1, 1]
    assert "no client's upload was finite" in ended[0].err
    assert ended[1].err == ""


def test_the_longest_work_goes_first_to_whoever_has_least() -> None:
    # 7 -> rank 0; 6 -> 1; 5 -> 1 (6 < 7) makes 11; 4 -> 0 makes 11; 3 -> 0 by its lower number; 2 -> 1
    assert balanced([4, 7, 2, 6, 5, 3], 2).tolist() == [0, 0, 1, 1, 1, 0]
    assert balanced([1, 1, 1], 5).tolist() == [0, 1, 2]
    assert balanced([], 2).tolist() == []


def test_all_trainings_of_a_round_are_balanced_together(make_experiment: Any) -> None:
    """Three models of two clients each, on three ranks. The clients process 3, 12, 8, 5, 20 and 12 samples:
    20 → rank 0; 12 → 1; 12 → 2; 8 → 1 (by its lower number) makes 20; 5 → 2 makes 17; 3 → 2 makes 20.
    """
    simulation = Simulation(make_experiment())
    state = simulation.initial()
    tasks = [
        CohortJob(torch.tensor(pair), 0, {MODEL: state.server.model}, state.client_states)
        for pair in ([0, 1], [3, 2], [5, 4])
    ]
    teams = [DistributedCohort(first_executor(simulation), Ranks(rank, 3), stateful=False) for rank in range(3)]
    shared = [[share.cohort.tolist() for share in team.local_jobs(tasks)] for team in teams]
    assert shared == [[[], [], [4]], [[1], [2], []], [[0], [3], [5]]]


class Threads(Ranks):
    """Ranks that are threads of one process."""

    def __init__(self, number: int, values: list[Any], everyone: threading.Barrier) -> None:
        super().__init__(number, len(values))
        self._values, self._everyone = values, everyone

    def all_gather(self, value: Any) -> list[Any]:
        self._values[self.number] = value
        self._everyone.wait()
        values = list(self._values)
        self._everyone.wait()
        return values

    def all_reduce(self, vector: torch.Tensor) -> None:
        vector.copy_(torch.stack(self.all_gather(vector.clone())).sum(0))


def combined(
    make_experiment: Any, partial: list[CohortUpdate], members: list[int], received: dict[str, torch.Tensor]
) -> list[CohortUpdate]:
    """What each rank makes of the ranks' partial updates of one model."""
    executor = first_executor(Simulation(make_experiment()))
    values: list[Any] = [None] * len(partial)
    everyone = threading.Barrier(len(partial), timeout=60)

    def combine(rank: int) -> CohortUpdate:
        distributed = DistributedCohort(executor, Threads(rank, values, everyone), stateful=False)
        (update,) = distributed.combine([partial[rank]], [torch.tensor(members)], [received])
        return update

    with ThreadPoolExecutor(len(partial)) as threads:
        return list(threads.map(combine, range(len(partial))))


def test_partial_updates_become_one_in_the_order_of_selection(make_experiment: Any) -> None:
    """Clients 5, 2, 9, 7 and 0 were selected; rank 0 trained 2, 7 and 0, rank 1 trained 5 and 9. The uploads of 0 and 9
    were not finite. The ranks' weights are 1 + 3 and 12, their samples 10 and 20: means (4 · 2 + 12 · 6) / 16 = 5 and
    (4 · 8 + 12 · 0) / 16 = 2, loss (10 · 1 + 20 · 4) / 30 = 3, score (10 · 0.3 + 20 · 0.6) / 30 = 0.5.
    """

    def update(clients: list[int], excluded: int, weights: list[float], **fields: Any) -> CohortUpdate:
        of_clients = torch.tensor(clients).double()
        return CohortUpdate(
            clients=torch.tensor(clients),
            samples=10 * torch.tensor(clients),
            steps=100 * torch.tensor(clients),
            reports={"reported": of_clients / 2},
            measures={"measured": of_clients / 4},
            losses=of_clients / 8,
            squared_norms=of_clients / 16,
            rows=torch.tensor([[client, -client] for client in clients]).float(),
            weights=torch.tensor(weights).double(),
            excluded=(excluded,),
            processed=torch.tensor([[client, 1, 0] for client in (*clients, excluded)]),
            **fields,
        )

    received = {MODEL: torch.tensor([1.0, 0.1])}
    first, second, eight = torch.tensor([2.0, 0.1]), torch.tensor([6.0, 0.1]), torch.tensor([8.0])
    wide = torch.tensor([8e300], dtype=torch.float64)  # too large for float32
    partial = [
        update(
            [2, 7], 0, [1, 3], mean={MODEL: first, "more": eight, "wide": wide}, loss=1, score=0.3, sample_weight=10
        ),
        update(
            [5], 9, [12], mean={MODEL: second, "more": 0 * eight, "wide": 0 * wide}, loss=4, score=0.6, sample_weight=20
        ),
    ]
    for whole in combined(make_experiment, partial, [5, 2, 9, 7, 0], received):
        assert whole.clients.tolist() == [5, 2, 7] and whole.excluded == (9, 0)
        assert (whole.samples.tolist(), whole.steps.tolist()) == ([50, 20, 70], [500, 200, 700])
        assert whole.weights.tolist() == [12, 1, 3]
        assert whole.reports["reported"].tolist() == [5 / 2, 2 / 2, 7 / 2]
        assert whole.measures["measured"].tolist() == [5 / 4, 2 / 4, 7 / 4]
        assert whole.losses.tolist() == [5 / 8, 2 / 8, 7 / 8]
        assert whole.squared_norms is not None and whole.squared_norms.tolist() == [5 / 16, 2 / 16, 7 / 16]
        assert whole.rows is not None and whole.rows.tolist() == [[5, -5], [2, -2], [7, -7]]
        assert torch.equal(whole.mean[MODEL], torch.tensor([5.0, 0.1]))  # what nobody changed is exactly the same
        assert whole.mean["more"].tolist() == [2.0]
        assert whole.mean["wide"].tolist() == pytest.approx([2e300])
        assert (whole.loss, whole.score, whole.sample_weight) == pytest.approx((3.0, 0.5, 30.0))
        assert sorted(whole.processed[:, 0].tolist()) == [0, 2, 5, 7, 9]


def test_over_ranks_clients_without_weights_count_alike(make_experiment: Any) -> None:
    """Two clients with mean 2 on rank 0, one with 5 on rank 1: (2 · 2 + 5) / 3 = 3. The third rank has none."""
    partial = [
        CohortUpdate(
            clients=torch.tensor(clients),
            samples=torch.tensor(clients),
            steps=torch.tensor(clients),
            weights=torch.zeros(len(clients), dtype=torch.float64),
            losses=torch.zeros(len(clients), dtype=torch.float64),
            mean={MODEL: torch.tensor([value])},
        )
        for clients, value in (([1, 2], 2.0), ([3], 5.0))
    ]
    partial.append(CohortUpdate.empty())
    for whole in combined(make_experiment, partial, [1, 2, 3], {MODEL: torch.tensor([1.0])}):
        assert whole.mean[MODEL].item() == pytest.approx(3.0)


def torchrun(*options: str) -> list[str]:
    """With ``--standalone`` it chooses a free port, so that tests can run side by side."""
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", *options]


def dying(rank: int, number: int, *arguments: str) -> list[str]:
    return [str(HERE / "dying.py"), str(rank), str(number), *SMALL, *arguments]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["scaffold", "fedconcat_fesem"])
def test_torchrun_restarts_what_has_died(alone: Any, tmp_path: Path, strategy: str) -> None:
    command = [
        *torchrun("--standalone", "--nproc-per-node", "2", "--max-restarts", "1"),
        *dying(1, 2, f"strategy={strategy}"),
    ]
    path = os.pathsep.join([str(REPOSITORY), str(HERE)])
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert "another rank was lost" in ended.stderr
    assert_same(the_run(tmp_path), alone(f"strategy={strategy}"))


@pytest.mark.slow
def test_torchrun_passes_on_that_it_was_asked_to_stop(alone: Any, tmp_path: Path) -> None:
    chosen = ("strategy=fedconcat_fesem", "rounds=200", "strategy.post_training.rounds=190")
    command = [*torchrun("--standalone", "--nproc-per-node", "2"), *dying(-1, 0, *chosen, "checkpoint_seconds=1000")]
    where = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(HERE)])}}
    with (tmp_path / "said").open("w") as said:
        running = subprocess.Popen(command, **where, stdout=said, stderr=said)
        until = time.monotonic() + 120
        while sum(len(file.read_text().splitlines()) for file in tmp_path.rglob("metrics.jsonl")) < 5:
            assert running.poll() is None and time.monotonic() < until, (tmp_path / "said").read_text()
            time.sleep(0.05)
        running.terminate()
        assert running.wait(timeout=60) != 0
    done = len(rows(the_run(tmp_path))) - 1
    assert 4 <= done < 200
    assert f"fedrun: stopped by SIGTERM after round {done};" in (tmp_path / "said").read_text()
    assert torch.load(the_run(tmp_path) / "checkpoint.pt")["round"] == done
    ended = subprocess.run(command, **where, check=False, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert_same(the_run(tmp_path), alone(*chosen))


@pytest.fixture
def two_machines() -> Iterator[tuple[str, str]]:
    """The names of two network namespaces, 10.77.0.1 and 10.77.0.2, with a cable between them."""
    first, second = (f"fedrun-{os.getpid()}-{number}" for number in (1, 2))
    cable = (f"fr{os.getpid() % 10**6}a", f"fr{os.getpid() % 10**6}b")
    with contextlib.ExitStack() as made:
        try:
            for name in (first, second):
                ip("netns", "add", name)
                made.callback(ip, "netns", "delete", name)
            ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
            for name, end, address in ((first, cable[0], "10.77.0.1"), (second, cable[1], "10.77.0.2")):
                ip("link", "set", end, "netns", name)
                ip("-n", name, "address", "add", f"{address}/24", "dev", end)
                ip("-n", name, "link", "set", end, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', '') or error}")
        yield first, second


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["turbosvm_strict", "fedconcat_id"])
def test_two_machines(alone: Any, tmp_path: Path, two_machines: tuple[str, str], strategy: str) -> None:
    path = os.pathsep.join([str(REPOSITORY), str(HERE)])
    processes = []
    for number, machine in enumerate(two_machines):
        folder = tmp_path / str(number)  # nothing is shared
        folder.mkdir()
        where = ["--nnodes", "2", "--node-rank", str(number), "--master-addr", "10.77.0.1", "--master-port", "29577"]
        device = (
            subprocess.run(["ip", "-n", machine, "-o", "-4", "address"], check=True, capture_output=True, text=True)
            .stdout.splitlines()[-1]
            .split()[1]
        )
        environment = {**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": device.split("@")[0]}
        command = ["ip", "netns", "exec", machine, *torchrun(*where), *dying(-1, 0, f"strategy={strategy}")]
        output = (tmp_path / f"output{number}").open("w")
        processes.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output))
    ended = [process.wait(timeout=300) for process in processes]
    assert ended == [0, 0], (tmp_path / "output0").read_text() + (tmp_path / "output1").read_text()
    assert_same(the_run(tmp_path / "0"), alone(f"strategy={strategy}"))
    assert not (tmp_path / "1" / "outputs").exists()
