"""MaxFL's mean estimation: one server step by hand, appeal against a loop, and what it writes."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "maxfl_mean_estimation.py"

specification = importlib.util.spec_from_file_location("maxfl_mean_estimation", SCRIPT)
assert specification is not None and specification.loader is not None
script = importlib.util.module_from_spec(specification)
sys.modules[script.__name__] = script  # where dataclasses look up annotations
specification.loader.exec_module(script)

PROBLEM = script.MeanEstimation(draws=50, steps=40, seed=4)


def sigmoid_slope(x: float) -> float:
    return math.exp(-x) / (1 + math.exp(-x)) ** 2


def test_a_server_step_by_hand() -> None:
    # w = 0, estimates 1 and -2: displacements 0.1 * 2 * 1 and -0.1 * 2 * 2, weights at the losses 1 and 4
    q = sigmoid_slope(1.0), sigmoid_slope(4.0)
    expected = (q[0] * 0.2 + q[1] * -0.4) / sum(q)
    step = PROBLEM.server_step(torch.zeros(1, 1).double(), torch.tensor([[1.0, -2.0]]).double())
    assert step.item() == pytest.approx(expected, rel=1e-12)


def test_far_from_everybody_the_nearest_pulls() -> None:
    """Weights of e^-900 and e^-961 cannot be told from 0, but from each other."""
    step = PROBLEM.server_step(torch.zeros(1, 1).double(), torch.tensor([[30.0, -31.0]]).double())
    assert step.item() == pytest.approx(0.1 * 2 * 30.0, rel=1e-12)


@pytest.mark.parametrize("clients", [2, 3])
def test_appeal_against_a_loop(clients: int) -> None:
    noise = torch.randn(50, clients, generator=torch.Generator().manual_seed(4), dtype=torch.float64).tolist()
    true = [-1.5, 1.5] if clients == 2 else [-1.5, -1.5, 1.5]
    hits = [0, 0]
    for row in noise:
        known = [mean + error for mean, error in zip(true, row, strict=True)]
        maxfl = 0.0
        for _ in range(40):
            weights = [sigmoid_slope((maxfl - own) ** 2) for own in known]
            linear_correction = sum(weight * -0.2 * (maxfl - own) for weight, own in zip(weights, known, strict=True))
            maxfl += linear_correction / sum(weights)
        for which, estimate in enumerate((sum(known) / clients, maxfl)):
            hits[which] += sum(
                (estimate - mean) ** 2 < (own - mean) ** 2 for mean, own in zip(true, known, strict=True)
            )
    assert PROBLEM.appeal(clients, 1.5) == pytest.approx([count / (50 * clients) for count in hits])


def test_what_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(script, "SPREADS", (0.0, 4.0))
    script.main(tmp_path)
    lines = (tmp_path / "mean_estimation.csv").read_text().splitlines()
    assert lines[0] == "clients,spread,fedavg,maxfl"
    assert [line.split(",")[:2] for line in lines[1:]] == [["2", "0.0"], ["2", "4.0"], ["3", "0.0"], ["3", "4.0"]]
    assert (tmp_path / "mean_estimation.png").stat().st_size > 1000
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(lines[1:])
