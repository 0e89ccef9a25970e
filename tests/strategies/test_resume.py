"""Every strategy, killed in its third round and taken up again, ends exactly as if it had not been."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet
import pytest

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.observer import Observer, Row, RunInfo
from fedrun.runs.run import run

from ..helpers.interrupted_runs import rows
from ..helpers.strategies import FLEXIBLE, FOR_SMALL_MODELS

SETTING = (
    "rounds=4",
    "partition.clients=8",
    "clients_per_round=5",
    "model.hidden=[8]",
    "local.lr=0.05",
    "local.batch_size=40",
    "hardware.threads=1",
    "tracking=none",
    "evaluation.train_clients=false",
    "checkpoint_seconds=0",
)


# Nothing is private in FedBN but what is in FedPer; test_lora.py resumes the rules for adapters.
CASES = {strategy: (f"strategy={strategy}",) for strategy in FOR_SMALL_MODELS} | {
    "unseen, flipped and attacking clients that come when they like": (*FLEXIBLE, "population.flipped_share=0.25"),
    "nobody comes from the second round on": (
        "strategy=fedavg",
        "appeal=constant",
        "appeal.loss=1e-6",
        "participation=flexible",
        "participation.mandatory_share=0.2",
    ),
    "clients that are chosen by what they did before": ("participation=oort", "clock=lognormal", "clients_per_round=3"),
    "reversed updates and idle clients": ("strategy=fedumf", "attack=sign_flip", "attack.share=0.25"),
    "errors of compressed uploads": ("strategy=scaffold", "compression=topk", "compression.memory_decay=0.5"),
    "a bound that follows the uploads": (
        "strategy=fedadam",
        "privacy=user_level_adaptive",
        "privacy.noise_multiplier=0.3",
        "privacy.accountant=rdp",  # quicker than pld
    ),
    "noised steps": (
        "strategy=scaffold",
        "privacy=sample_level",
        "privacy.noise_multiplier=1.0",
        "privacy.accountant=rdp",
    ),
    "a vote": ("compression=sign", "compression.rule=vote", "compression.memory=none", "clients_per_round=3"),
    "fedsgd": ("strategy=fedsgd", "local.batch_size=null"),
    "pfedfda": ("strategy=pfedfda", "partition.clients=4", "clients_per_round=2"),  # tests of own models take long
    "false labels": ("strategy=scaffold", "attack=label_flip", "attack.share=0.25"),
}


class Resumed(Observer):
    """Notes after which round a run is resumed."""

    after: int | None = None

    def on_start(self, info: RunInfo) -> None:
        self.after = info.resumed_after


class CopiesFolder(Observer):
    """Copies the run's folder when the third row has been written, and the newest checkpoint is of the second round."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy

    def on_start(self, info: RunInfo) -> None:
        self.folder = info.folder

    def on_row(self, row: Row) -> None:
        if row["round"] == 3:
            shutil.copytree(self.folder, self.copy)


@pytest.mark.parametrize("case", CASES)
def test_killed_and_resumed(case: str, tmp_path: Path, plain: None) -> None:
    """What a process leaves that dies in the third round is the run's folder at that moment."""
    whole, left = tmp_path / "whole", tmp_path / "left"
    experiment = build_experiment(compose([*SETTING, *CASES[case], f"output_dir={tmp_path / 'runs'}"]))
    run(experiment, [CopiesFolder(left)])
    experiment.folder.rename(whole)
    left.rename(experiment.folder)
    assert not (experiment.folder / "summary.json").exists()
    assert [row["round"] for row in rows(experiment.folder)] == [0, 1, 2, 3]
    resumed = Resumed()
    run(experiment, [resumed])
    assert resumed.after == 2
    assert [row["round"] for row in rows(experiment.folder)] == [0, 1, 2, 3, 4]
    assert rows(experiment.folder) == rows(whole)
    assert pyarrow.parquet.read_table(experiment.folder / "clients.parquet").equals(
        pyarrow.parquet.read_table(whole / "clients.parquet")
    )
    assert (experiment.folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
