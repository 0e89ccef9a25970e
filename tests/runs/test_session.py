"""Runs and their folders: repeatable, resumable after any death, and never harmed by what goes wrong around them."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import logging
import math
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet
import pytest
import torch
import yaml
from safetensors.torch import load_file

import fedrun.runs.run as run_module
from fedrun.config.composed import compose
from fedrun.data.datasets.in_memory import InMemory
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.experiment.observer import Observer, Row, RunInfo
from fedrun.report.runs import find
from fedrun.runs import checkpoint
from fedrun.runs.display.console import PlainLines
from fedrun.runs.folder import locked
from fedrun.runs.metrics_file import MetricsFile
from fedrun.runs.observers import Observers
from fedrun.runs.run import run
from fedrun.runs.summary import best
from fedrun.simulation.simulation import Simulation
from fedrun.system.checksums import write_sealed
from fedrun.system.errors import InputError, RunError

from ..helpers.forked import Fedrun

SETTING = (
    "model=logistic",
    "partition.clients=5",
    "local.batch_size=32",
    "hardware.threads=1",
    "tracking=none",
    "display=none",
)
"""A federation that trains a round in a few milliseconds."""

Folder = Callable[..., Path]


@cache
def experiment_of(overrides: tuple[str, ...]) -> Experiment:
    return build_experiment(compose([*SETTING, *overrides]))


@pytest.fixture
def ran(tmp_path: Path, plain: None) -> Folder:
    """``ran("rounds=3", ...)``: carry out a run below ``tmp_path / "outputs"``; its folder."""

    def carry_out(*overrides: str, watched_by: tuple[Observer, ...] = (), below: str = "outputs") -> Path:
        experiment = replace(experiment_of(overrides), output_dir=str(tmp_path / below))
        summary = run(experiment, watched_by)
        assert summary["folder"] == str(experiment.folder)
        return experiment.folder

    return carry_out


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def results(folder: Path) -> tuple[list[dict[str, Any]], bytes, list[dict[str, Any]]]:
    """All that a run computes: its rows but for times, its model, its clients."""
    timeless = [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows(folder)]
    clients = pyarrow.parquet.read_table(folder / "clients.parquet").to_pylist()
    return timeless, (folder / "model.safetensors").read_bytes(), clients


def summary(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "summary.json").read_text())
    assert isinstance(content, dict)
    return content


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Time of change and content of every file of a run but its log, in which a refusal may be told."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.log")
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


class Interrupting(Observer):
    """Presses Ctrl-C when ``done`` clients of round ``round`` have finished."""

    def __init__(self, round: int, done: int) -> None:
        self.when = (round, done)

    def on_client(self, round: int, done: int, cohort: int) -> None:
        if (round, done) == self.when:
            raise KeyboardInterrupt


def interrupted(ran: Folder, tmp_path: Path, *overrides: str, round: int = 3, done: int = 1) -> Path:
    """A run stopped by Ctrl-C; its folder."""
    with pytest.raises(KeyboardInterrupt):
        ran(*overrides, watched_by=(Interrupting(round, done),))
    (checkpoint,) = tmp_path.glob("outputs/runs/**/checkpoint.pt")
    return checkpoint.parent


# What a run leaves.


def test_the_files_of_a_run(ran: Folder) -> None:
    folder = ran("rounds=2", "strategy=turbosvm", "seed=3")
    assert sorted(path.name for path in folder.iterdir()) == [
        ".hydra",
        ".lock",
        "checkpoint.pt",
        "checksums.txt",
        "clients.parquet",
        "curves.png",
        "federation.png",
        "metrics.jsonl",
        "model.safetensors",
        "run.log",
        "summary.json",
    ]
    assert folder.parts[-6:-2] + folder.parts[-1:] == ("outputs", "runs", "digits", "turbosvm", "seed=3")


def test_rows(ran: Folder) -> None:
    first, second, third = rows(ran("rounds=2", "clients_per_round=2"))
    assert [row["round"] for row in (first, second, third)] == [0, 1, 2]
    tested = {"test/loss", "test/accuracy", "test/f1", "test/mcc"}
    sent = {"cost/params_up", "cost/params_down", "cost/bytes_up", "cost/bytes_down"}
    costs = sent | {"cost/client_samples", "cost/forward_samples"}
    assert set(first) >= {"round", "time/eval_s"} | tested | costs
    trained = {"train/loss", "train/accuracy", "clients/excluded", "time/round_s", "time/server_s"}
    assert set(second) == set(third) == set(first) | trained
    # 64 x 10 weights and 10 biases, to and from two clients.
    assert [row["cost/params_up"] for row in (first, second, third)] == [0, 1300, 2600]
    assert [row["cost/params_down"] for row in (first, second, third)] == [0, 1300, 2600]
    assert 0 == first["cost/client_samples"] < second["cost/client_samples"] < third["cost/client_samples"]


def test_summary(ran: Folder) -> None:
    folder = ran("rounds=6", "targets=[0.2,0.5,1.0]", "seed=2")
    found, recorded = summary(folder), rows(folder)
    accuracies = {row["round"]: row["test/accuracy"] for row in recorded}
    assert (found["status"], found["title"], found["seed"]) == ("complete", "fedavg · digits · seed 2", 2)
    assert (found["dataset"], found["strategy"], found["rounds"], found["cap"]) == ("digits", "fedavg", 6, 6)
    assert found["overrides"][-4:-1] == ["rounds=6", "targets=[0.2,0.5,1.0]", "seed=2"]
    assert found["group"] == f"runs/digits/fedavg/{found['config_hash']}"
    assert {"round": 6, **found["final"]} == recorded[-1]
    highest = max(accuracies.values())
    earliest = min(round for round, accuracy in accuracies.items() if accuracy == highest)
    assert found["best"]["test/accuracy"] == {"value": highest, "round": earliest}
    assert found["best"]["test/loss"]["value"] == min(row["test/loss"] for row in recorded)
    # The first round t >= 1 at or above the target; null where it was not reached.
    hits = {target: [r for r, a in accuracies.items() if r >= 1 and a >= target] for target in (0.2, 0.5, 1.0)}
    assert hits[0.5] and not hits[1.0]
    assert found["rounds_to"] == {"0.20": min(hits[0.2]), "0.50": min(hits[0.5]), "1.00": None}
    assert found["seconds"] > 0
    assert found["versions"]["torch"] == torch.__version__
    assert found["data"] == build_experiment(compose()).dataset.load().fingerprint


def test_a_search_reports_no_target(ran: Folder) -> None:
    """Targets are test accuracies: on validation samples none is reached, nor missed."""
    found = summary(ran("rounds=3", "targets=[0.01]", "validation.share=0.2"))
    assert found["final"]["validation/accuracy"] > 0.01
    assert found["rounds_to"] == {}


def test_the_executor_is_recorded_and_does_not_name_the_folder(ran: Folder) -> None:
    setting = ("rounds=1", "clients_per_round=2")
    folder = ran(*setting, "hardware.executor=vectorized")
    assert summary(folder)["machine"]["executor"] == "vectorized"
    assert ran(*setting) == folder
    assert summary(ran(*setting, below="other"))["machine"]["executor"] == "in_process"


def test_the_record_of_the_configuration(ran: Folder) -> None:
    folder = ran("rounds=1", "seed=4")
    config = yaml.safe_load((folder / ".hydra/config.yaml").read_text())
    asked = yaml.safe_load((folder / ".hydra/overrides.yaml").read_text())
    assert (config["rounds"], config["seed"], config["model"]["_target_"]) == (1, 4, "fedrun.models.logistic.Logistic")
    assert asked[-3:] == ["rounds=1", "seed=4", f"output_dir={folder.parents[4]}"]
    again = build_experiment(compose([key for key in asked if not key.startswith("output_dir=")]))
    again = replace(again, output_dir=config["output_dir"])
    assert again.record.config == config
    assert again.folder == folder


def test_the_model_and_the_clients(ran: Folder, tmp_path: Path) -> None:
    folder = ran("rounds=3", "evaluation.train_clients=true")
    model = load_file(folder / "model.safetensors")
    weight, bias = model["head.weight"].double(), model["head.bias"].double()
    assert set(model) == {"head.weight", "head.bias"} and weight.shape == (10, 64)

    composed = compose([*SETTING, "rounds=3"])
    federation = Simulation(build_experiment(composed)).federation
    data = federation.dataset
    table = pyarrow.parquet.read_table(folder / "clients.parquet")
    measured, flags = ["loss", "accuracy", "evaluated_on", "threshold", "appeal"], ["seen", "attacker", "flipped"]
    assert table.column_names == ["client", "samples", *measured, *flags]
    lines = table.to_pylist()
    assert [(line["client"], line["seen"]) for line in lines] == [*((str(k), True) for k in range(5)), ("test", False)]
    assert sum(line["samples"] for line in lines[:-1]) == data.train_size == 1442
    for line, own in zip(lines, [*(federation.train[k] for k in range(5)), federation.test.samples], strict=True):
        # Softmax regression by hand on the samples' 64 grey values from 0 to 16.
        logits = (data.inputs[own].double().flatten(1) / 16) @ weight.T + bias
        wanted = data.targets[own]
        losses = logits.logsumexp(1) - logits[torch.arange(len(own)), wanted]
        assert line["samples"] == len(own)
        assert line["loss"] == pytest.approx(losses.mean().item(), abs=1e-5)
        assert line["accuracy"] == pytest.approx((logits.argmax(1) == wanted).double().mean().item())
        assert line["evaluated_on"] == ("train" if line["seen"] else "test")
        assert line["threshold"] is None and line["appeal"] is None
        assert not line["attacker"] and not line["flipped"]
    assert rows(folder)[-1]["test/loss"] == pytest.approx(lines[-1]["loss"])


@pytest.mark.parametrize(
    ("changes", "evaluated"),
    [
        (("rounds=1", "evaluation.train_clients=true"), True),
        (("rounds=9", "evaluation.train_clients=false"), False),
        # By itself once they were trained on three times.
        (("rounds=2", "clients_per_round=5"), False),
        (("rounds=3", "clients_per_round=5"), True),
    ],
)
def test_clients_are_evaluated_where_that_is_asked_for_or_cheap(
    ran: Folder, changes: tuple[str, ...], evaluated: bool
) -> None:
    folder = ran(*changes)
    lines = pyarrow.parquet.read_table(folder / "clients.parquet").to_pylist()
    found = [(line["loss"] is not None, line["accuracy"] is not None) for line in lines]
    assert found == [(evaluated, evaluated)] * 5 + [(True, True)]


@pytest.mark.parametrize("seed", range(2))
def test_adaptive_evaluation_finds_the_same_rounds(ran: Folder, seed: int) -> None:
    targets = (0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.88, 0.9, 0.92, 0.99)
    setting = (f"targets={list(targets)}".replace(" ", ""), "rounds=17", "local.lr=0.05", f"seed={seed}")
    setting = (*setting, "evaluation.batch_size=16")
    full = ran(*setting)
    for changes in ((), ("evaluation.miss_probability=0",), ("evaluation.every=3",)):
        folder = ran(*setting, "evaluation.adaptive=true", *changes)
        known = {
            row["round"]: row for row in results(full)[0] if row["round"] % (3 if "every" in str(changes) else 1) == 0
        }
        known[17] = results(full)[0][-1]
        hits = {t: [r for r, row in known.items() if r >= 1 and row["test/accuracy"] >= t] for t in targets}
        found = summary(folder)["rounds_to"]
        assert list(found.values()) == [min(hits[target], default=None) for target in targets]
        evaluated = 0
        for row in results(folder)[0]:
            whole = known[row["round"]]
            drawn = row.pop("test/evaluated", 355)
            evaluated += drawn
            if "test/accuracy" in row:
                assert drawn == 355
                assert row == pytest.approx(whole)
                continue
            estimate = row.pop("test/accuracy_estimate")
            assert estimate * drawn == pytest.approx(round(estimate * drawn)) and drawn < 355
            assert row == {key: value for key, value in whole.items() if not key.startswith("test/")}
        print(f"seed {seed}, {changes or 'default'}: {evaluated / 355 / len(known):.0%} of all samples evaluated")
        assert evaluated < 355 * len(known)
    assert rows(folder)[-1]["test/accuracy"] == rows(full)[-1]["test/accuracy"]
    assert summary(folder)["rounds_to"]["0.80"] is not None and summary(folder)["rounds_to"]["0.99"] is None


def test_adaptive_evaluation_is_full_where_it_is_to_be(ran: Folder) -> None:
    setting = ("targets=[0.99]", "rounds=10", "evaluation.adaptive=true", "evaluation.batch_size=16", "local.lr=0.05")
    whole = {row["round"]: row for row in results(ran(*setting, "evaluation.adaptive=false"))[0]}
    found = {row["round"]: row for row in results(ran(*setting, "evaluation.full_every=4"))[0]}
    full = [round for round, row in found.items() if "test/f1" in row]
    assert list(found) == list(range(11)) and full == [4, 8, 10]
    assert all(found[round] == pytest.approx(whole[round]) for round in full)


def test_adaptive_evaluation_seeks_no_target_on_validation_samples(ran: Folder) -> None:
    setting = ("targets=[0.2]", "rounds=6", "evaluation.adaptive=true", "evaluation.batch_size=16")
    found = rows(ran(*setting, "validation.share=0.2"))
    assert [row["round"] for row in found if "validation/accuracy" in row] == [6]
    assert found[-1]["validation/accuracy"] > 0.4
    assert [row["validation/evaluated"] for row in found[:-1]] == [16] * 6


def test_adaptive_evaluation_stops_at_its_targets_and_goes_on_after_an_interruption(
    ran: Folder, tmp_path: Path
) -> None:
    setting = ("targets=[0.6,0.85]", "stop_at_targets=true", "rounds=40", "evaluation.adaptive=true")
    setting = (*setting, "evaluation.batch_size=16", "local.lr=0.05")
    with pytest.raises(KeyboardInterrupt):
        ran(*setting, watched_by=(Interrupting(4, 1),))
    folder = ran(*setting)
    assert results(folder)[0] == results(ran(*setting, below="other"))[0]
    last = rows(folder)[-1]
    assert last["round"] == summary(folder)["rounds_to"]["0.85"] < 40 and last["test/accuracy"] >= 0.85


def test_evaluation_every_three_rounds(ran: Folder) -> None:
    every, third = ran("rounds=7"), ran("rounds=7", "evaluation.every=3")
    assert [row["round"] for row in rows(third)] == [0, 3, 6, 7]
    timeless = {row["round"]: row for row in results(every)[0]}
    assert results(third)[0] == [timeless[round] for round in (0, 3, 6, 7)]
    assert results(third)[1] == results(every)[1]


def test_stopping_at_the_targets(ran: Folder) -> None:
    whole = rows(ran("rounds=12", "targets=[0.3,0.8]"))
    first = min(row["round"] for row in whole if row["test/accuracy"] >= 0.8 and row["round"])
    assert first < 12
    folder = ran("rounds=12", "targets=[0.3,0.8]", "stop_at_targets=true")
    assert [row["round"] for row in rows(folder)] == list(range(first + 1))
    assert (summary(folder)["rounds"], summary(folder)["cap"]) == (first, 12)
    assert summary(folder)["rounds_to"]["0.80"] == first


@pytest.mark.parametrize("metric", ["train/acuracy", "unseen/accuracy_mean"])
def test_targets_of_metrics_that_the_run_does_not_record(ran: Folder, metric: str) -> None:
    with pytest.raises(
        InputError, match=rf"^targets: the run records no {metric}; allowed: .*test/accuracy, .*train/loss$"
    ):
        ran("rounds=3", f"targets=[{metric}:0.1,0.3]")


def test_targets_of_training_wait_for_clients_that_train(ran: Folder) -> None:
    """No model is below the threshold, so that nobody takes part; the target is not reached."""
    nobody = ("appeal=constant", "appeal.loss=1e-9", "participation=flexible", "participation.mandatory_share=0")
    folder = ran("rounds=2", "targets=[train/loss:0.1]", *nobody)
    assert summary(folder)["rounds_to"] == {"train/loss:0.1": None}


# Again, and after interruptions.


@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "turbosvm", "fedadam"])
def test_the_same_twice(ran: Folder, strategy: str) -> None:
    chosen = (f"strategy={strategy}", "rounds=3")
    once, twice = ran(*chosen), ran(*chosen, below="elsewhere")
    assert results(once) == results(twice)
    assert results(once)[1] != results(ran(*chosen, "seed=1"))[1]


def test_a_finished_run_is_not_computed_again(ran: Folder) -> None:
    folder = ran("rounds=2")
    before = contents(folder)
    assert ran("rounds=2", watched_by=(Interrupting(1, 1),)) == folder
    assert contents(folder) == before


def test_overwrite_computes_again(ran: Folder) -> None:
    folder = ran("rounds=2")
    before, computed = contents(folder), results(folder)
    assert ran("rounds=2", "overwrite=true") == folder
    after = contents(folder)
    assert results(folder) == computed
    assert after.keys() == before.keys()
    assert all(after[name][0] > before[name][0] for name in ("metrics.jsonl", "summary.json", "checkpoint.pt"))
    log = (folder / "run.log").read_text().splitlines()
    assert "overwrite=true" in log[0]
    assert log[-1].endswith("finished")


def test_overwrite_deletes_the_trackers_folders(ran: Folder, tmp_path: Path) -> None:
    """``wandb sync`` would upload the former run, too."""
    folder = ran("rounds=1")
    for name in ("wandb/offline-run-1-a/run-a.wandb", "tensorboard/events", "notes/mine.txt"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    ran("rounds=1")
    assert (folder / "wandb/offline-run-1-a/run-a.wandb").exists()
    ran("rounds=1", "overwrite=true")
    assert not (folder / "wandb").exists() and not (folder / "tensorboard").exists()
    assert (folder / "notes/mine.txt").exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (folder / "wandb").symlink_to(elsewhere)
    ran("rounds=1", "overwrite=true")
    assert not (folder / "wandb").is_symlink() and (elsewhere / "kept").exists()


def test_a_run_that_another_process_finishes_while_the_data_are_prepared(
    ran: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its results are returned, not written again."""
    build, finished = run_module.build_simulation, []

    def build_meanwhile(*arguments: Any) -> Simulation:
        monkeypatch.setattr(run_module, "build_simulation", build)
        finished.append(contents(ran("rounds=2")))
        return build(*arguments)

    monkeypatch.setattr(run_module, "build_simulation", build_meanwhile)
    folder = ran("rounds=2", watched_by=(Interrupting(1, 1),))
    assert contents(folder) == finished[0]


def test_a_failing_read_is_not_reported_as_a_failing_write(ran: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's strategy may read a file that is missing: the error is shown as it is."""

    def advance(*arguments: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory", "weights.csv")

    monkeypatch.setattr(Simulation, "advance", advance)
    with pytest.raises(FileNotFoundError):
        ran("rounds=1")


def test_the_metrics_are_on_the_disk_before_the_checkpoint_that_names_them(
    ran: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    sync, save = MetricsFile.sync, checkpoint.save
    monkeypatch.setattr(MetricsFile, "sync", lambda file: (calls.append("metrics"), sync(file)))
    monkeypatch.setattr(checkpoint, "save", lambda *arguments: (calls.append("checkpoint"), save(*arguments)))
    ran("rounds=2", "checkpoint_seconds=0")
    assert calls == ["metrics", "checkpoint"] * (len(calls) // 2) and len(calls) >= 4


def test_a_finished_run_in_another_place(ran: Folder, tmp_path: Path) -> None:
    ran("rounds=1")
    (tmp_path / "outputs").rename(tmp_path / "moved")
    assert ran("rounds=1", below="moved").is_relative_to(tmp_path / "moved")  # `ran` compares it with the summary


@pytest.mark.parametrize("done", [1, 3])
@pytest.mark.parametrize("strategy", ["scaffold", "turbosvm"])
def test_ctrl_c_keeps_the_last_whole_round(ran: Folder, tmp_path: Path, strategy: str, done: int) -> None:
    chosen = (f"strategy={strategy}", "rounds=5", "evaluation.every=2")
    folder = interrupted(ran, tmp_path, *chosen, done=done)
    saved = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert saved["round"] == 2
    assert not (folder / "summary.json").exists()
    assert ran(*chosen) == folder
    assert results(folder) == results(ran(*chosen, below="uninterrupted"))


class Counting(Observer):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def on_start(self, run: RunInfo) -> None:
        self.told.append(("start", [row["round"] for row in run.history]))

    def on_row(self, row: Row) -> None:
        self.told.append(("row", row["round"]))

    def on_end(self, summary: Mapping[str, Any]) -> None:
        self.told.append(("end", summary["rounds"]))

    def on_stop(self, round: int) -> None:
        self.told.append(("stop", round))

    def close(self) -> None:
        self.told.append(("close", None))


def test_a_resumed_run_computes_only_what_is_missing(ran: Folder, tmp_path: Path) -> None:
    interrupted(ran, tmp_path, "rounds=4")
    watching = Counting()
    ran("rounds=4", watched_by=(watching,))
    assert watching.told == [("start", [0, 1, 2]), ("row", 3), ("row", 4), ("end", 4), ("close", None)]


def test_the_log_says_that_a_run_was_resumed(ran: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "fedrun")
    interrupted(ran, tmp_path, "rounds=4")
    log = (ran("rounds=4") / "run.log").read_text()
    first, second = log.split("INFO fedrun.runs.run: overrides: ")[1:]
    assert "resumed" not in first
    assert "resumed   after round 2 of 4\n" in second
    assert "machine   1 process " in second
    assert "machine" not in caplog.text and logging.getLogger("fedrun").propagate


def test_a_run_resumed_in_its_second_phase_reports_the_choices_of_the_whole_run(ran: Folder, tmp_path: Path) -> None:
    """The second phase has fewer clients per round, and a model of two encoders."""
    chosen = ("strategy=fedconcat", "strategy.clustering.clusters=2", "rounds=4", "clients_per_round=3")
    second = ("strategy.post_training.rounds=2", "strategy.post_training.clients_per_round=2")
    interrupted(ran, tmp_path, *chosen, *second, round=4)
    reported = summary(ran(*chosen, *second))["decisions"]
    assert reported["model"] == "logistic, 650 parameters"
    assert reported["cohort"] == "3 of 5 clients per round"
    assert reported == summary(ran(*chosen, *second, below="uninterrupted"))["decisions"]


@pytest.mark.parametrize("strategy", ["scaffold", pytest.param("turbosvm", marks=pytest.mark.slow)])
def test_killed_at_random_moments(fedrun: Fedrun, ran: Folder, tmp_path: Path, strategy: str) -> None:
    chosen = (f"strategy={strategy}", "rounds=40", "evaluation.every=2", "checkpoint_seconds=0")
    draw = random.Random(7)
    for _ in range(3):
        moment = ("fedrun.runs.checkpoint", "save", draw.randint(1, 3), draw.uniform(0.0, 0.01))
        ended = fedrun(*SETTING, *chosen, folder=tmp_path, kill_at=moment)
        assert (ended.status, ended.err) == (-signal.SIGALRM, "")
    folder = ran(*chosen)
    assert rows(folder)[-1]["round"] == 40
    assert results(folder) == results(ran(*chosen, below="uninterrupted"))


# The worst moments: metrics or a checkpoint are written but not yet on the disk or in its place; a new checkpoint is in
# place; a row is written whose round no checkpoint knows; the model is written but nothing after it; everything is
# written but the summary.
MOMENTS = [
    ("os", "fsync", 3),
    ("os", "fsync", 4),
    ("pathlib:Path", "replace", 3),
    ("pathlib:Path", "replace", 4),
    ("torch", "save", 2),
    ("fedrun.runs.session", "save_clients", 1),
    ("fedrun.runs.session", "finish", 1),
]


def test_killed_at_the_worst_moments(fedrun: Fedrun, ran: Folder, tmp_path: Path) -> None:
    chosen = ("strategy=scaffold", "rounds=12", "checkpoint_seconds=0")
    for moment in MOMENTS:
        assert fedrun(*SETTING, *chosen, folder=tmp_path, kill_at=(*moment, 0.0)).status == -signal.SIGKILL
        (folder,) = tmp_path.glob("outputs/runs/digits/scaffold/*/seed=0")
        assert not (folder / "summary.json").exists()
    assert ran(*chosen) == folder
    assert results(folder) == results(ran(*chosen, below="uninterrupted"))


# Damaged, foreign and missing files.


def altered(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A checkpoint with a change in its content."""

    def alter(path: Path) -> None:
        content = torch.load(path, weights_only=True)
        change(content)
        with write_sealed(path) as file:
            torch.save(content, file)

    return alter


def cut(path: Path, keep: float) -> None:
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])


ADVICE = "it was left in place and not used; delete it, or start over with overwrite=true"
DAMAGES = [
    (lambda path: cut(path, 0.5), "is damaged (its checksum is missing); "),
    (lambda path: cut(path, 0.99), "is damaged (its checksum is missing); "),
    (lambda path: cut(path, 0), "is damaged (its checksum is missing); "),
    (lambda path: path.write_bytes(b"\x80\x02garbage" * 50), "is damaged (its checksum is missing); "),
    (lambda path: torch.save([1, 2], path), "is damaged (its checksum is missing); "),
    (altered(lambda content: content["models"][0].pop("slots")), "is damaged (KeyError); "),
    (altered(lambda content: content.update(format=99)), "written by another version of fedrun; "),
    (
        altered(lambda content: content.update(format=99, identity={**content["identity"], "new": 1})),
        "written by another version of fedrun; ",
    ),
    (altered(lambda content: content["identity"].update(config="0" * 8)), "belongs to config 00000000, seed 0, not to"),
    (altered(lambda content: content["identity"].update(seed=9)), "belongs to config "),
    (altered(lambda content: content["identity"].update(data="other")), "was made with other data (the dataset's "),
    (altered(lambda content: content["models"][0].update(model=torch.zeros(7))), "holds another model; "),
    (altered(lambda content: content.update(history={"a": torch.zeros(2)})), "holds other tensors than the rule of "),
]


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_a_checkpoint_that_cannot_be_used(ran: Folder, tmp_path: Path, number: int) -> None:
    damage, message = DAMAGES[number]
    folder = interrupted(ran, tmp_path, "rounds=4")
    damage(folder / "checkpoint.pt")
    before = contents(folder)
    with pytest.raises(InputError) as refusal:
        ran("rounds=4")
    assert str(refusal.value).startswith(f"{folder / 'checkpoint.pt'}: {message}")
    assert str(refusal.value).endswith(ADVICE)
    assert "\n" not in str(refusal.value)
    assert contents(folder) == before
    ran("rounds=4", "overwrite=true")
    assert summary(folder)["rounds"] == 4


def test_a_checkpoint_copied_from_another_run(ran: Folder, tmp_path: Path) -> None:
    folder = interrupted(ran, tmp_path, "rounds=4")
    other = ran("rounds=4", "local.lr=0.2", below="other")
    shutil.copy(other / "checkpoint.pt", folder)
    with pytest.raises(InputError, match=f"belongs to config {other.parent.name}, seed 0, not to this run"):
        ran("rounds=4")


def test_metrics_cut_short(ran: Folder, tmp_path: Path) -> None:
    folder = interrupted(ran, tmp_path, "rounds=4")
    size = (folder / "metrics.jsonl").stat().st_size
    cut(folder / "metrics.jsonl", 0.9)
    before = contents(folder)
    with pytest.raises(InputError) as refusal:
        ran("rounds=4")
    left = (folder / "metrics.jsonl").stat().st_size
    assert str(refusal.value).startswith(f"{folder}/metrics.jsonl: has {left} bytes; the checkpoint expects {size};")
    assert contents(folder) == before


def test_rows_no_checkpoint_knows_of_are_dropped(ran: Folder, tmp_path: Path) -> None:
    folder = interrupted(ran, tmp_path, "rounds=4")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "test/accuracy": 1.0}\n{"round": 4, "test/acc')
    ran("rounds=4")
    assert results(folder) == results(ran("rounds=4", below="uninterrupted"))


def test_a_damaged_row(ran: Folder, tmp_path: Path) -> None:
    folder = interrupted(ran, tmp_path, "rounds=4")
    metrics = folder / "metrics.jsonl"
    metrics.write_bytes(b"x" + metrics.read_bytes()[1:])
    before = contents(folder)
    with pytest.raises(InputError, match=r"metrics.jsonl: is damaged \(its checksum differs\); restore"):
        ran("rounds=4")
    assert contents(folder) == before


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "{}", '{"status": "running"}', '{"status": "complete"}'])
def test_a_damaged_summary(ran: Folder, content: str) -> None:
    folder = ran("rounds=1")
    (folder / "summary.json").write_text(content)
    before = contents(folder)
    with pytest.raises(InputError) as refusal:
        ran("rounds=1")
    assert str(refusal.value).startswith(f"{folder}/summary.json: ")
    assert str(refusal.value).endswith(
        f"; delete {folder}/summary.json (the same command then writes the results again), or start over with "
        "overwrite=true"
    )
    assert "\n" not in str(refusal.value)
    assert contents(folder) == before
    (folder / "summary.json").unlink()
    ran("rounds=1")
    assert summary(folder)["status"] == "complete"


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "clients.parquet", "metrics.jsonl", "summary.json", ".hydra/config.yaml"],
)
def test_a_flipped_bit_of_a_finished_run(ran: Folder, name: str) -> None:
    folder = ran("rounds=1")
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    before = contents(folder)
    with pytest.raises(InputError) as refusal:
        ran("rounds=1")
    assert str(refusal.value).startswith(f"{folder / name}: is damaged (its checksum differs); ")
    assert contents(folder) == before
    assert find([str(folder)]).damaged


# No place to write to.


def test_an_output_folder_below_a_file(ran: Folder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match=r"/file: is not a folder that can be written; choose another output_dir$"):
        ran("rounds=1", below="file/here")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_that_is_a_file(ran: Folder, tmp_path: Path) -> None:
    folder = ran("rounds=1")
    shutil.rmtree(folder)
    folder.write_text("precious")
    with pytest.raises(InputError, match=r"/seed=0: is not a folder that can be written; choose another output_dir$"):
        ran("rounds=1")
    assert folder.read_text() == "precious"


def test_a_folder_that_cannot_be_made(ran: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", str(tmp_path / "outputs"))

    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(
        InputError, match=r"outputs: cannot be created \(Read-only file system\); choose another output_dir$"
    ):
        ran("rounds=1")


def test_a_full_disk(fedrun: Fedrun, ran: Folder, tmp_path: Path) -> None:
    chosen = ("rounds=40", "checkpoint_seconds=0")
    for largest_file, blamed in ((4_000, "checkpoint.pt"), (9_000, "metrics.jsonl")):
        ended = fedrun(*SETTING, *chosen, folder=tmp_path, largest_file=largest_file)
        (folder,) = tmp_path.glob("outputs/runs/digits/fedavg/*/seed=0")
        assert ended.status == 1
        assert ended.err.startswith(
            f"fedrun: {(folder / blamed).relative_to(tmp_path)}: cannot be written (File too large); "
        )
        assert ended.err.endswith("; the files so far are kept, and the same command continues the run\n")
        assert ended.err.count("\n") == 1
        assert not (folder / "summary.json").exists()
    assert 0 < (folder / "metrics.jsonl").read_text().count("\n") < 41  # after which comes part of a row
    assert ran(*chosen) == folder
    assert results(folder) == results(ran(*chosen, below="uninterrupted"))


@pytest.mark.parametrize(
    ("module", "name", "file"),
    [
        ("fedrun.runs.session", "plot_labels", "federation.png"),
        ("fedrun.runs.session", "save_model", "model.safetensors"),
        ("fedrun.runs.session", "save_clients", "clients.parquet"),
        ("fedrun.runs.session", "plot_curves", "curves.png"),
        ("fedrun.runs.session", "finish", "summary.json"),
    ],
)
def test_a_file_that_cannot_be_written_is_named(
    ran: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, file: str
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.{name}", no_room)
        with pytest.raises(RunError, match=rf"/{file}: cannot be written \(No space left on device\); make room or "):
            ran("rounds=2")
    assert summary(ran("rounds=2"))["rounds"] == 2


def test_a_file_that_cannot_be_read_is_not_said_to_be_unwritable(ran: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "lookup.csv")

    with monkeypatch.context() as patch:
        patch.setattr("fedrun.runs.session.client_table", unreadable)
        with pytest.raises(FileNotFoundError, match=r"lookup.csv"):
            ran("rounds=2")


def test_a_full_disk_spares_the_earlier_checkpoint(fedrun: Fedrun, ran: Folder, tmp_path: Path) -> None:
    folder = interrupted(ran, tmp_path, "rounds=4", "strategy=scaffold")
    checkpoint = (folder / "checkpoint.pt").read_bytes()
    chosen = (*SETTING, "rounds=4", "strategy=scaffold", "checkpoint_seconds=0")
    ended = fedrun(*chosen, folder=tmp_path, largest_file=len(checkpoint) - 1000)
    assert ended.status == 1
    assert ended.err.startswith(f"fedrun: {folder.relative_to(tmp_path)}/checkpoint.pt: cannot be written (File too ")
    assert ended.err.count("\n") == 1
    assert (folder / "checkpoint.pt").read_bytes() == checkpoint
    ran("rounds=4", "strategy=scaffold")
    assert results(folder) == results(ran("rounds=4", "strategy=scaffold", below="uninterrupted"))


def test_two_processes_on_one_run(ran: Folder, tmp_path: Path) -> None:
    folder = interrupted(ran, tmp_path, "rounds=4")
    before = contents(folder)
    with locked(folder), pytest.raises(InputError) as refusal:
        ran("rounds=4", "overwrite=true")
    assert str(refusal.value) == f"{folder}: another process is computing this run; wait for it or stop it"
    assert contents(folder) == before
    assert ran("rounds=4") == folder


def test_a_file_system_without_locks(
    ran: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = ran("rounds=2")
    assert f"{folder}: cannot be locked (No locks available); do not start this run twice at once" in caplog.text


def test_a_killed_process_holds_no_lock(fedrun: Fedrun, tmp_path: Path) -> None:
    assert fedrun(*SETTING, "rounds=2", folder=tmp_path, kill_at=("torch", "save", 1, 0.0)).status == -signal.SIGKILL
    assert fedrun(*SETTING, "rounds=2", folder=tmp_path).status == 0


# Around a run.


class Failing(Counting):
    """Raises at one event."""

    def __init__(self, event: str) -> None:
        super().__init__()
        self.event = event

    def fail(self, event: str) -> None:
        self.told.append((event, None))
        if event == self.event:
            raise ConnectionError("the cat is on the cable")

    def on_start(self, run: RunInfo) -> None:
        self.fail("on_start")

    def on_client(self, round: int, done: int, cohort: int) -> None:
        self.fail("on_client")

    def on_row(self, row: Row) -> None:
        self.fail("on_row")

    def on_end(self, summary: Mapping[str, Any]) -> None:
        self.fail("on_end")

    def close(self) -> None:
        self.fail("close")


def test_the_log_has_what_was_asked_for_and_how_it_ended(ran: Folder, tmp_path: Path) -> None:
    overrides = ("rounds=2", "local.lr=1e30", "local.weight_decay=1e30")
    with pytest.raises(RunError):
        ran(*overrides)
    (log,) = tmp_path.glob("outputs/runs/*/*/*/*/run.log")
    first, *_, last = log.read_text().splitlines()
    assert first.split(": ", 2)[1:] == ["overrides", " ".join((*SETTING, *overrides, f"output_dir={tmp_path}/outputs"))]
    assert " ERROR fedrun.runs.run: round 1: no client's upload was finite " in last
    folder = ran("rounds=1")
    assert (folder / "run.log").read_text().endswith(" INFO fedrun.runs.run: finished\n")
    with pytest.raises(KeyboardInterrupt):
        ran("rounds=3", watched_by=(Interrupting(2, 1),))
    assert sum(path.read_text().endswith(": interrupted\n") for path in tmp_path.rglob("run.log")) == 1


def test_the_log_has_warnings_from_before_the_folder_exists(ran: Folder) -> None:
    log = (
        (ran("rounds=1", "model=mlp", "strategy=moon", "hardware.executor=vectorized") / "run.log")
        .read_text()
        .splitlines()
    )
    warning = "hardware.executor=vectorized does not support strategy/client=moon, which uses embeddings or"
    assert [line.split(": ", 1)[1].startswith(warning) for line in log].count(True) == 1
    assert " overrides: " in log[0]


@pytest.mark.parametrize("event", ["on_start", "on_client", "on_row", "on_end", "close"])
def test_an_observer_that_fails_is_dropped(ran: Folder, caplog: pytest.LogCaptureFixture, event: str) -> None:
    failing, watching = Failing(event), Counting()
    folder = ran("rounds=2", watched_by=(failing, watching))
    assert summary(folder)["rounds"] == 2
    assert "Failing failed and is not used any more in this run: the cat is on the cable" in caplog.text
    assert [told for told, _ in failing.told].count("close") == 1
    last = "close" if event == "close" else event
    assert [told for told, _ in failing.told if told != "close"][-1:] in ([last], ["on_end"])
    assert watching.told[-2:] == [("end", 2), ("close", None)]
    assert "the cat is on the cable" in (folder / "run.log").read_text()


class Emptying(Observer):
    """Takes entries out of what it is told, as trackers do with a row's number."""

    def on_start(self, run: RunInfo) -> None:
        for row in run.history:
            cast("dict[str, Any]", row).clear()

    def on_row(self, row: Row) -> None:
        cast("dict[str, Any]", row).clear()


def test_an_error_without_a_message_is_named_by_its_type(caplog: pytest.LogCaptureFixture) -> None:
    def reset(observer: Observer) -> None:
        raise ConnectionResetError

    Observers([Counting()]).notify(reset)
    assert caplog.messages == ["Counting failed and is not used any more in this run: ConnectionResetError"]


def test_an_observer_may_change_its_rows(ran: Folder, tmp_path: Path) -> None:
    """The summary and other observers are told what the file has, also of the rounds before an interruption."""
    chosen = ("rounds=4", "targets=[0.01]")
    interrupted(ran, tmp_path, *chosen)
    watching = Counting()
    folder = ran(*chosen, watched_by=(Emptying(), watching))
    assert summary(folder)["final"]["test/accuracy"] == rows(folder)[-1]["test/accuracy"]
    assert summary(folder)["rounds_to"] == {"0.01": 1}
    assert rows(folder)[1]["test/accuracy"] >= 0.01
    assert ("row", 4) in watching.told


def test_observers_are_closed_when_a_run_stops(ran: Folder, tmp_path: Path) -> None:
    watching = Counting()
    with pytest.raises(KeyboardInterrupt):
        ran("rounds=4", watched_by=(watching, Interrupting(2, 1)))
    assert watching.told == [("start", []), ("row", 0), ("row", 1), ("stop", 1), ("close", None)]


class InterruptingRow(Observer):
    """Presses Ctrl-C while observers are told of round 3."""

    def on_row(self, row: Row) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("interrupting", [Interrupting(3, 2), InterruptingRow()])
def test_a_run_is_said_to_stop_where_it_continues(ran: Folder, interrupting: Observer) -> None:
    """Round 3 is not kept: in the one case its model is not tested, in the other its row is being told."""
    told = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        ran("rounds=4", "clients_per_round=2", watched_by=(PlainLines(told), interrupting))
    ran("rounds=4", "clients_per_round=2", watched_by=(PlainLines(told),))
    said = re.findall("(stopped|resumed|complete) after round (.) of 4", told.getvalue())
    assert said == [("stopped", "2"), ("resumed", "2"), ("complete", "4")]


def test_a_run_that_diverges(ran: Folder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^round 1: no client's upload was finite \(clients \["):
        ran("rounds=3", "local.lr=1e30", "local.weight_decay=1e30")
    (folder,) = tmp_path.glob("outputs/runs/digits/fedavg/*/seed=0")
    assert [row["round"] for row in rows(folder)] == [0]
    assert not (folder / "summary.json").exists()


def test_numbers_that_are_not_finite_are_null(ran: Folder) -> None:
    folder = ran("rounds=1", "local.lr=1e30", "local.epochs=null", "local.steps=1")
    last = rows(folder)[-1]
    assert last["test/loss"] is None or math.isfinite(last["test/loss"])
    assert "NaN" not in (folder / "metrics.jsonl").read_text() + (folder / "summary.json").read_text()
    assert "Infinity" not in (folder / "metrics.jsonl").read_text() + (folder / "summary.json").read_text()


def test_a_changed_experiment_has_a_folder_of_its_own(tmp_path: Path, plain: None) -> None:
    """Its results must neither be taken from the configuration's own run nor be taken for it."""
    experiment = build_experiment(compose([*SETTING, f"output_dir={tmp_path}", "rounds=1"]))
    images, classes = np.arange(120, dtype=np.float32).reshape(40, 3) % 7 / 7, np.arange(40) % 2
    data = InMemory.of((images, classes), (images, classes), classes=2)
    changed = replace(experiment, dataset=data, rounds=2, partition=replace(experiment.partition, min_samples=1))
    first = run(changed)
    record = yaml.safe_load((changed.folder / ".hydra" / "config.yaml").read_text())
    assert record["dataset"] == {
        "_target_": "fedrun.data.datasets.in_memory.InMemory",
        "data": data.dataset.fingerprint,
    }
    assert record["rounds"] == 2
    assert first["overrides"][-3:] == ["dataset=InMemory", "partition.min_samples=1", "rounds=2"]
    assert first["title"] == "fedavg · inmemory · seed 0"
    assert run(changed) == first  # finished
    other = InMemory.of((1 - images, classes), (images, classes), classes=2)
    for different in (experiment, replace(changed, rounds=3), replace(changed, dataset=other)):
        assert different.folder != changed.folder
        assert not different.folder.exists()


def test_the_callers_generators_and_threads_stay_as_they_were(ran: Folder) -> None:
    def seed() -> None:
        random.seed(5)
        np.random.seed(5)
        torch.manual_seed(5)

    def draws() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    seed()
    expected, threads = draws(), torch.get_num_threads()
    seed()
    try:
        torch.set_num_threads(3)
        ran("rounds=2", "evaluation.tuning_epochs=1", "population.test_share=0.3", "appeal=warmup")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    simulation = Simulation(experiment_of(("rounds=3",)))
    state, _ = simulation.advance(simulation.initial())
    simulation.test(state)
    assert draws() == expected


def test_an_experiment_whose_objects_nothing_identifies_has_no_folder(make_experiment, tmp_path: Path) -> None:
    experiment = make_experiment(network=lambda spec: None, output_dir=str(tmp_path))
    with pytest.raises(
        InputError, match=r"^model\.network: function is neither a config class nor has a method as_conf"
    ):
        run(experiment)
    assert list(tmp_path.iterdir()) == []


def test_wandb_offline_keeps_its_files_in_the_folder(tmp_path: Path, plain: None) -> None:
    keys = [key for key in SETTING if not key.startswith("tracking")]
    experiment = build_experiment(compose([*keys, "tracking.mode=offline", f"output_dir={tmp_path}", "rounds=1"]))
    run(experiment)
    assert list((experiment.folder / "wandb").glob("offline-run-*/run-*.wandb"))


def test_the_time_of_earlier_sessions_counts(ran, tmp_path):
    folder = interrupted(ran, tmp_path, "rounds=4")
    altered(lambda content: content.update(seconds=1000.0))(folder / "checkpoint.pt")
    assert 1000 < summary(ran("rounds=4"))["seconds"] < 1100


def test_the_time_in_which_a_tracker_starts_does_not_count(ran, monkeypatch):
    clock, waited = time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + waited[0])

    class Slow(Observer):
        def on_start(self, run: RunInfo) -> None:
            waited[0] = 1000.0

    assert summary(ran("rounds=1", watched_by=(Slow(),)))["seconds"] < 1000


def test_the_best_round_is_the_first_of_equals():
    content = [{"round": n, "test/accuracy": a, "test/loss": 1 - a} for n, a in ((0, 0.1), (2, 0.5), (5, 0.5))]
    rounds = {name: each["round"] for name, each in best(content, "test/accuracy").items()}
    assert rounds == {"test/accuracy": 2, "test/loss": 2}
