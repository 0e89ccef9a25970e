"""The compressor and the privacy mechanism in docs/uploads.md work as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation

GUIDE = Path(__file__).parents[2] / "docs" / "uploads.md"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's files."""
    blocks = re.findall(r"`(\S+)`:\n\n```(?:python|yaml)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert sum(block.count("\n") for _, block in blocks) <= 75
    for name, content in blocks:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


KEYS = ["model=logistic", "clients_per_round=4", "hardware.threads=1", "tracking=none"]


def test_a_privacy_mechanism_of_ones_own(own: Path) -> None:
    simulation = Simulation(build_experiment(compose([*KEYS, "privacy=laplace"], "conf")))
    before = simulation.initial()
    after, _ = simulation.advance(before)
    assert simulation.test(after)["privacy/epsilon"] == 100.0
    # a mean of displacements of L1 norm 1 at most, and of noise whose absolute value is 2 / 100 in the mean
    moved = (after.server.model - before.server.model).abs().sum().item()
    assert 650 * 0.02 / 4 - 1 < moved < 650 * 0.02 + 1


def test_a_compressor_of_ones_own(own: Path) -> None:
    simulation = Simulation(build_experiment(compose([*KEYS, "compression=halves"], "conf")))
    before = simulation.initial()
    after, metrics = simulation.advance(before)
    assert after.totals.bytes_up == 4 * 2 * 650
    assert 0 < metrics["compress/error"] < 1e-6
    kept = [state["compression error of model"] for state in after.client_states.held.values()]
    assert len(kept) == 4 and not torch.equal(kept[0], torch.zeros(650))
