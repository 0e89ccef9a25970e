"""Every strategy, interrupted after two rounds and taken up again, ends exactly as if it had not been."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
import pytest

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.runs import session
from fedrun.runs.run import run

from ..helpers.interrupted_runs import Interrupts, rows
from ..helpers.strategies import FOR_SMALL_MODELS

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
)


# Nothing is private in FedBN but what is in FedPer; test_lora.py resumes the rules for adapters.
CASES = {strategy: (f"strategy={strategy}",) for strategy in FOR_SMALL_MODELS} | {
    "unseen, flipped and attacking clients that come when they like": (
        "strategy=maxfl",
        "strategy.client.tuning_steps=2",
        "appeal.steps=5",
        "participation=flexible",
        "participation.mandatory_share=0.2",
        "attack=gaussian",
        "attack.share=0.34",
        "population.unseen_clients=2",
        "population.test_share=0.3",
        "population.flipped_share=0.25",
        "evaluation.tuning_steps=2",
    ),
    "nobody comes from the second round on": (
        "strategy=fedavg",
        "appeal=constant",
        "appeal.loss=1e-6",
        "participation=flexible",
        "participation.mandatory_share=0.2",
    ),
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


@pytest.mark.parametrize("case", CASES)
def test_interrupted_and_resumed(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "plot_labels", lambda _, path: path.write_bytes(b""))
    monkeypatch.setattr(session, "plot_curves", lambda _, path, __: path.write_bytes(b""))
    whole, parted = (
        build_experiment(compose([*SETTING, *CASES[case], f"output_dir={tmp_path / name}"]))
        for name in ("whole", "parted")
    )
    run(whole)
    with pytest.raises(KeyboardInterrupt):
        run(parted, [Interrupts(2)])
    assert not (parted.folder / "summary.json").exists()
    run(parted)
    assert [row["round"] for row in rows(parted.folder)] == [0, 1, 2, 3, 4]
    assert rows(parted.folder) == rows(whole.folder)
    assert pyarrow.parquet.read_table(parted.folder / "clients.parquet").equals(
        pyarrow.parquet.read_table(whole.folder / "clients.parquet")
    )
    assert (parted.folder / "model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()
