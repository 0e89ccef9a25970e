"""A dataset that a function of the user's own loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.runs.run import run
from fedrun.system.errors import InputError

MODULE = """
import numpy as np
import fedrun

def load():
    draw = np.random.default_rng(0)
    classes = draw.integers(0, 3, 60)
    inputs = (classes[:, None] == np.arange(3)).astype("float32")
    return fedrun.InMemory.of((inputs[:40], classes[:40]), (inputs[40:], classes[40:]), classes=3, users=range(40))

def wrong():
    return 3
def of_path(path):
    return load()
"""

SETTING = ("dataset=custom", "rounds=3", "partition.clients=4", "local.lr=1.0", "tracking=none", "display=none")


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_data.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


def test_arguments_are_plain_values() -> None:
    """They name the run's folder. Python's tuples are lists of YAML."""
    given = {"sizes": (8, 4), "names": ["a", {"b": None}]}
    assert option("dataset", "custom", target="my_own_data.of_path", arguments=given).arguments == given
    for value in (np.ones(2), {1, 2}):
        with pytest.raises(InputError, match=r"^dataset\.arguments=\{x:.*\}: allowed: a mapping from names to values"):
            option("dataset", "custom", target="my_own_data.of_path", arguments={"x": value})


def test_arguments_of_the_function() -> None:
    experiment = build_experiment(
        compose([*SETTING, "dataset.target=my_own_data.of_path", "dataset.arguments={path: here}"])
    )
    assert experiment.dataset.load().train_size == 40
    other = build_experiment(
        compose([*SETTING, "dataset.target=my_own_data.of_path", "dataset.arguments={path: there}"])
    )
    assert other.folder != experiment.folder


def test_a_run_on_it() -> None:
    experiment = build_experiment(compose([*SETTING, "dataset.target=my_own_data.load", "hardware.threads=1"]))
    assert run(experiment)["final"]["test/accuracy"] == 1.0  # the inputs are the classes, one-hot


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("my_own_data.wrong", "dataset.target=my_own_data.wrong: returns a int; allowed: a fedrun.InMemory, such as"),
        (
            "my_own_data.of_path",
            "my_own_data.of_path: missing a required argument: 'path'; allowed: a function that takes no argument$",
        ),
        ("my_own_data.none", "dataset.target=my_own_data.none: .*; allowed: the dotted path of a function"),
        ("my_own_data.MODULE", "allowed: the dotted path of a function"),
        ("nowhere", "dataset.target=nowhere: .*; allowed: the dotted path of a function"),
    ],
)
def test_functions_that_cannot_be_used(target: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_experiment(compose([*SETTING, f"dataset.target={target}"]))
