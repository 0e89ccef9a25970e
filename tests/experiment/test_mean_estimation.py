"""MaxFL's mean estimation: one server step by hand, appeal against a loop, and the command."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.studies.mean_estimation import MeanEstimation
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator


def study(**changes: object) -> MeanEstimation:
    return option("study", "mean_estimation", **{"draws": 50, "steps": 40, **changes})


def sigmoid_slope(x: float) -> float:
    return math.exp(-x) / (1 + math.exp(-x)) ** 2


def test_a_server_step_by_hand() -> None:
    # w = 0, estimates 1 and -2: displacements 0.1 * 2 * 1 and -0.1 * 2 * 2, weights at the losses 1 and 4
    q = sigmoid_slope(1.0), sigmoid_slope(4.0)
    expected = (q[0] * 0.2 + q[1] * -0.4) / sum(q)
    step = study().server_step(torch.zeros(1, 1).double(), torch.tensor([[1.0, -2.0]]).double())
    assert step.item() == pytest.approx(expected, rel=1e-12)


def test_far_from_everybody_the_nearest_pulls() -> None:
    """Weights of e^-900 and e^-961 cannot be told from 0, but from each other."""
    step = study().server_step(torch.zeros(1, 1).double(), torch.tensor([[30.0, -31.0]]).double())
    assert step.item() == pytest.approx(0.1 * 2 * 30.0, rel=1e-12)


@pytest.mark.parametrize("name", ["clients", "spreads"])
def test_an_empty_list_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"study\.{name}=\[\]: allowed: a list, each item .*, at least 1 of them"):
        build_experiment(compose(["experiment=maxfl/mean_estimation", f"study.{name}=[]"]).config)


@pytest.mark.parametrize("clients", [2, 3])
def test_appeal_against_a_loop(clients: int) -> None:
    noise = torch.randn(50, clients, generator=generator(4, "means", clients), dtype=torch.float64).tolist()
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
    assert study().appeal(clients, 1.5, seed=4) == pytest.approx([count / (50 * clients) for count in hits])


def test_what_it_writes(tmp_path: Path) -> None:
    told = study(spreads=[0.0, 4.0], clients=[2]).run(tmp_path, 0)
    lines = (tmp_path / "mean_estimation.csv").read_text().splitlines()
    assert lines[0] == "clients,spread,fedavg,maxfl"
    assert [line.split(",")[:2] for line in lines[1:]] == [["2", "0.0"], ["2", "4.0"]]
    assert (tmp_path / "mean_estimation.png").stat().st_size > 1000
    assert "GM-Appeal" in told and str(tmp_path) in told
