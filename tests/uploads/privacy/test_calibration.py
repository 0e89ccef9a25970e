"""Calibrated noise is searched once."""

from __future__ import annotations

import json

import pytest

from fedrun.simulation.simulation import Simulation
from fedrun.uploads.privacy import calibration
from fedrun.uploads.privacy.accountant import Release
from fedrun.uploads.privacy.calibration import with_noise

from ...helpers.small_networks import mlp
from ...helpers.upload_rounds import private

RELEASE, FIXED = (Release(7, 7, 0.0, sampling) for sampling in ("poisson", "fixed"))


def test_a_resumed_run_reads_what_was_calibrated(make_experiment, tmp_path, monkeypatch):
    privacy = private(noise_multiplier=None, epsilon=8.595866, delta=1e-5)
    experiment = make_experiment(network=mlp, clients_per_round=6, rounds=50, privacy=privacy)
    first = Simulation(experiment, cache=tmp_path)
    (path,) = (tmp_path / "noise").iterdir()
    stored = json.loads(path.read_text())
    assert stored["noise_multiplier"] == pytest.approx(4.0, abs=2e-3) and stored["rounds"] == 50
    monkeypatch.setattr(calibration, "calibrated", None)  # which cannot be called
    again = Simulation(experiment, cache=tmp_path)
    metrics = [simulation.test(simulation.initial()) for simulation in (first, again)]
    assert metrics[0] == metrics[1]
    assert metrics[1]["privacy/noise_multiplier"] == stored["noise_multiplier"]


@pytest.mark.parametrize(
    "easier",
    [{"epsilon": 8.0}, {"rounds": 40}, {"delta": 1e-4}, {"accountant": "pld"}],
    ids=lambda easier: next(iter(easier)),
)
def test_another_target_is_calibrated_anew(tmp_path, easier):
    """Each of these targets is reached with less noise; so is that of poisson cohorts, instead of fixed ones."""
    target = {"rounds": 50, "epsilon": 2.0, "delta": 1e-5, "accountant": "rdp"}
    fixed, first, other = (
        with_noise(release, **each, folder=tmp_path).noise_multiplier
        for release, each in ((FIXED, target), (RELEASE, target), (RELEASE, target | easier))
    )
    assert fixed > first > other and len(list(tmp_path.iterdir())) == 3


def test_the_calibration_is_announced(tmp_path, caplog):
    """It may take longer than anything before it; a stored result is read at once."""
    caplog.set_level("INFO")
    for folder in (None, tmp_path):
        with_noise(RELEASE, 50, 8.0, 1e-5, "rdp", folder)
        assert caplog.messages[0] == "privacy.epsilon=8: calibrating the noise"
        caplog.clear()
    with_noise(RELEASE, 50, 8.0, 1e-5, "rdp", tmp_path)
    assert "calibrating" not in caplog.text


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"noise_multiplier": 1.0}'])
def test_a_damaged_file_is_calibrated_again(tmp_path, caplog, content):
    first = with_noise(RELEASE, 50, 8.0, 1e-5, "rdp", tmp_path)
    (path,) = tmp_path.iterdir()
    good = path.read_text()
    path.write_text(content)
    assert with_noise(RELEASE, 50, 8.0, 1e-5, "rdp", tmp_path) == first
    assert f"{path}: cannot be used" in caplog.text and path.read_text() == good


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path, caplog):
    (tmp_path / "noise").write_text("a file")
    found = with_noise(RELEASE, 50, 8.0, 1e-5, "rdp", tmp_path / "noise")
    assert found == with_noise(RELEASE, 50, 8.0, 1e-5, "rdp")
    assert "cannot be written" in caplog.text


def test_a_target_that_the_least_noise_reaches_is_reported(tmp_path, caplog):
    """Also where the noise is read from a file. ε = 8 needs more."""
    for _ in range(2):
        found = with_noise(RELEASE, 50, 1e9, 1e-5, "pld", tmp_path)
        assert found.noise_multiplier == 0.05
        assert "privacy.epsilon=1e+09: the least noise multiplier that is searched, 0.05, already" in caplog.text
        caplog.clear()
    with_noise(RELEASE, 50, 8.0, 1e-5, "pld", tmp_path)
    assert "the least noise multiplier" not in caplog.text
