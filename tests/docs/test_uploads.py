"""The compressor in docs/uploads.md works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation

GUIDE = Path(__file__).parents[2] / "docs" / "uploads.md"


def test_a_compressor_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"`(\S+)`:\n\n```(?:python|yaml)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert sum(block.count("\n") for _, block in blocks) <= 30
    for name, content in blocks:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    keys = ["compression=halves", "model=logistic", "clients_per_round=4", "hardware.threads=1", "tracking=none"]
    simulation = Simulation(build_experiment(compose(keys, "conf")))
    before = simulation.initial()
    after, metrics = simulation.advance(before)
    assert after.totals.bytes_up == 4 * 2 * 650
    assert 0 < metrics["compress/error"] < 1e-6
    kept = [state["compression error of model"] for state in after.client_states.held.values()]
    assert len(kept) == 4 and not torch.equal(kept[0], torch.zeros(650))
