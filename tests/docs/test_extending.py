"""The package in docs/extending.md works as it stands there."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fedrun
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.report.settings import settings
from fedrun.report.sweep_table import tabulate
from fedrun.runs.display.panels import panels_of
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import Outputs

GUIDE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the guide's files, from which one can import; each block stands below its file's name."""
    blocks = re.findall(r"`(\S+)`:\n\n```(?:python|yaml)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    for name, content in blocks:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    assert {path.suffix for path in tmp_path.rglob("*.*")} == {".py", ".yaml"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_it_runs_with_either_executor(package: Path) -> None:
    found = []
    for executor in ("in_process", "vectorized"):
        setting = ["strategy=habit", "dataset=rings", "dataset.samples=400", f"hardware.executor={executor}"]
        simulation = Simulation(build_experiment(compose([*setting, "hardware.threads=1"], "conf")))
        assert simulation.round_runner(simulation.initial()).executor.name == executor
        state = simulation.initial()
        for _ in range(3):
            state, metrics = simulation.advance(state)
        assert metrics["server/direction_norm"] > 0
        assert len(state.client_states.held) > 6  # six of twelve clients in each round
        found.append(state)
    torch.testing.assert_close(found[0].server.model, found[1].server.model, rtol=1e-4, atol=1e-5)


def test_its_loss_term(package: Path) -> None:
    """At two logits 0 the entropy is ln 2 and the loss (1 − β) ln 2; far apart it is the cross-entropy."""
    experiment = build_experiment(compose(["strategy=confident"], "conf"))
    outputs = Outputs(torch.tensor([[0.0, 0.0], [60.0, 0.0]]))
    losses = experiment.strategy.client.loss(outputs, torch.tensor([0, 1]), {})
    assert losses.tolist() == pytest.approx([0.9 * math.log(2), 60.0])
    assert experiment.strategy.named_server == "strategy/server=fedavgm"


def test_its_mixed_inputs(package: Path) -> None:
    """Inputs 1 and 3 become 0.75 · 1 + 0.25 · 3 = 1.5 and 2.5. With the logits (x, 0) the losses of class 0 are
    ln(1 + e^−x) = a and b, of class 1 x more: 0.75 a + 0.25 (a + 1.5), and 0.75 (b + 2.5) + 0.25 b.
    """
    experiment = build_experiment(compose(["strategy/client=mixup", "strategy.client.share=0.75"], "conf"))

    def network(inputs: torch.Tensor) -> Outputs:
        return Outputs(torch.stack([inputs, torch.zeros(2)], 1))

    losses = experiment.strategy.client.batch_loss(network, torch.tensor([1.0, 3.0]), torch.tensor([0, 1]), {})
    a, b = math.log(1 + math.exp(-1.5)), math.log(1 + math.exp(-2.5))
    assert losses.tolist() == pytest.approx([a + 0.25 * 1.5, b + 0.75 * 2.5])
    Simulation(replace(experiment, rounds=1)).advance(Simulation(experiment).initial())


def test_its_settings(package: Path) -> None:
    composed = compose(["experiment=lab/compare", "dataset=rings", "strategy=habit"], "conf")
    experiment = build_experiment(composed)
    assert (experiment.name, experiment.rounds, experiment.local.lr) == ("lab/compare", 8, 0.05)
    assert type(experiment.partition).__module__ == "lab.partition"


def test_its_tracker(package: Path) -> None:
    chosen = ["tracking=csv", "rounds=1", "model=logistic", "partition.clients=4", "hardware.threads=1", "display=none"]
    summary = fedrun.run(build_experiment(compose(chosen, "conf")))
    lines = (Path(summary["folder"]) / "metric.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["0", "1"]
    assert float(lines[1].partition(",")[2]) == pytest.approx(summary["final"]["test/accuracy"])


def test_its_task(package: Path) -> None:
    """Its metrics are printed, plotted, reported and targets like those of fedrun's tasks."""
    command = re.search(r"fedrun (dataset=custom (?:.*\\\n)?.*)", GUIDE.read_text(encoding="utf-8"))
    assert command
    overrides = [*command[1].replace("\\\n", " ").split(), "tracking=none", "hardware.threads=1", "display=none"]
    summaries = {
        executor: fedrun.run(
            build_experiment(compose([*overrides, f"hardware.executor={executor}", f"name={executor}"]))
        )
        for executor in ("in_process", "vectorized")
    }
    for summary in summaries.values():
        assert summary["final"].keys() >= {"test/dice", "test/pixel_accuracy", "train/dice"}
        assert 0 < summary["rounds_to"]["test/dice:0.9"] <= summary["best"]["test/dice"]["round"]
        loaded = fedrun.load(summary["folder"])
        test = loaded.dataset.inputs[loaded.dataset.train_size :], loaded.dataset.targets[loaded.dataset.train_size :]
        found = loaded.predict(test[0])
        dice = [
            2 * sum(p and t for p, t in zip(mask.flatten(), truth.flatten(), strict=True)) / (mask.sum() + truth.sum())
            for mask, truth in zip(found.numpy(), test[1].numpy(), strict=True)
        ]
        assert summary["final"]["test/dice"] == pytest.approx(sum(dice) / len(dice), abs=1e-6)
    assert summaries["in_process"]["final"]["test/dice"] == pytest.approx(
        summaries["vectorized"]["final"]["test/dice"], abs=1e-3
    )
    table = tabulate(*settings([loaded.run]))
    assert table.header == ("", "runs", "dice", "pixel accuracy", "to test dice 0.9")
    assert table.notes[0] == "Test metrics after the last round; mean ± std over seeds (ddof 0)."
    assert [title for title, _ in panels_of([summaries["in_process"]["final"]])][:2] == ["dice", "pixel accuracy"]


def test_its_participation_rule(package: Path) -> None:
    """Over two days each client takes part in the rounds of its hours only."""
    overrides = ["participation=daily", "partition.clients=10", "clients_per_round=1.0", "rounds=48", "dataset=digits"]
    simulation = Simulation(build_experiment(compose([*overrides, "hardware.threads=1"], "conf")))
    state = simulation.initial()
    there = [set(simulation.uploads(replace(state, round=round)).clients.tolist()) for round in range(48)]
    assert there[:24] == there[24:]
    assert all(sum(client in cohort for cohort in there[:24]) == 12 for client in range(10))
    assert simulation.advance(state)[1]["clients/available"] == len(there[0])


def test_its_history(package: Path) -> None:
    """Four of twelve clients take part in each round: every client once in three rounds."""
    overrides = ["participation=rested", "partition=iid", "partition.clients=12", "clients_per_round=4"]
    simulation = Simulation(build_experiment(compose([*overrides, "model=logistic", "hardware.threads=1"], "conf")))
    state, chosen = simulation.initial(), []
    for _ in range(6):
        chosen += simulation.uploads(state).clients.tolist()
        state, _ = simulation.advance(state)
    assert sorted(chosen[:12]) == sorted(chosen[12:]) == list(range(12))
    assert chosen[:12] != chosen[12:]


def test_its_attack(package: Path) -> None:
    """If all clients attack without noise, the model stays as it is."""
    overrides = ["attack=idle", "attack.share=1.0", "model=logistic", "partition.clients=4", "hardware.threads=1"]
    simulation = Simulation(build_experiment(compose(overrides, "conf")))
    state = simulation.initial()
    torch.testing.assert_close(simulation.advance(state)[0].server.model, state.server.model)


def test_its_learning_rate(package: Path) -> None:
    command = re.search(r"fedrun (local._target_=\S+) '(\S+)'", GUIDE.read_text(encoding="utf-8"))
    assert command
    local = build_experiment(compose(command.groups())).local
    assert [local.rate(round) for round in (0, 19, 20, 40)] == pytest.approx([0.1, 0.1, 0.01, 0.001])
    assert local.at_rate(0.5).rate(40) == 0.5
