"""The group of trackers: several at once, one of one's own, and those that are not installed."""

import dataclasses
import importlib.util

import pytest

from fedrun.config.build import build, option
from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.observer import Observer
from fedrun.experiment.tracking import Tracking
from fedrun.runs.tracking.settings import flat_settings, run_name
from fedrun.system.errors import InputError


class Rows(Observer):
    def __init__(self, every):
        self.every = every


@config_class
class Own(Tracking):
    every: int

    def observer(self):
        return Rows(self.every)


def kinds(*overrides):
    tracking = build_experiment(compose(overrides)).tracking
    return [type(observer).__name__ for observer in tracking.observers()]


def test_several_at_once():
    pytest.importorskip("tensorboard")
    assert kinds("tracking=several") == ["WandbObserver", "TensorBoardObserver", "Observer"]
    assert kinds("tracking=several", "tracking@tracking.wandb=none")[:2] == ["Observer", "TensorBoardObserver"]


def test_none_has_no_keys_and_one_of_ones_own_has_its_own_only():
    assert option("tracking", "none") == Tracking()
    (own,) = build({"_target_": f"{Own.__module__}.Own", "every": 3}, "tracking").observers()
    assert own.every == 3


def test_a_tracker_that_is_not_installed_is_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("fedrun.system.extras.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"tracking=mlflow: mlflow is not installed; pip install 'fedrun\[mlflow\]'"):
        option("tracking", "mlflow").observer()


def test_a_name_is_made_of_what_differs(run_info):
    info = run_info()
    assert run_name(info) == "turbosvm femnist local.lr=0.2 seed=3"
    other = dataclasses.replace(info, overrides=("hardware=gpu", "tracking@tracking.wandb=none", "name=x", "~hparams"))
    assert run_name(other) == "turbosvm femnist ~hparams seed=3"
    keys = (
        "strategy.server.lr=0.01",
        "strategy/client=fedprox",
        "dataset.size=3",
        "dataset=femnist",
        "hardware.threads=1",
    )
    named = run_name(dataclasses.replace(info, overrides=keys))
    assert named == "turbosvm femnist strategy.server.lr=0.01 strategy/client=fedprox dataset.size=3 seed=3"


def test_settings_are_plain_values(run_info):
    assert flat_settings(run_info()) == {
        "strategy": "turbosvm",
        "dataset": "femnist",
        "partition": "natural",
        "rounds": 100,
        "targets": "[0.5, 0.7]",
        "strategy.server.lr": 1.0,
        "commit": "0123abc",
    }
