"""Compositions of plain containers are Hydra's, value for value and in the same order."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import cycle, islice
from pathlib import Path

import pytest

from fedrun.config import defaults_lists
from fedrun.config.composed import Composed
from fedrun.config.defaults_lists import NotPlainError
from fedrun.config.hydra_config import hydra_config
from fedrun.config.options import conf_dir, groups, options
from fedrun.config.overrides import with_implied
from fedrun.config.plain_composition import plain_composition
from fedrun.config.sweeper import SweeperSettings, sweeper_settings

ALONE = ("experiment", "hparams")
"""Groups whose options change those of other groups."""


def mixtures() -> list[list[str]]:
    """Arguments that choose an option in every group at once, so often that every option is chosen."""
    names = {group: options(group) for group in groups([conf_dir()]) if group not in ALONE}
    for group, own in (("model", "custom"), ("dataset", "custom"), ("dataset", "huggingface"), ("initial", "run")):
        names[group].remove(own)  # has keys without values
    parts = [group for group in names if "/" not in group]  # an option's parts are chosen by the option
    most = max(len(names[group]) for group in parts)
    chosen = [islice(cycle([f"{group}={name}" for name in names[group]]), most) for group in parts]
    return [list(arguments) for arguments in zip(*chosen, strict=True)]


CHOICES = [*mixtures(), *([f"experiment={name}"] for name in options("experiment"))]


@pytest.mark.parametrize(
    "overrides",
    [
        *(pytest.param(each, marks=[pytest.mark.slow] if index % 9 else []) for index, each in enumerate(CHOICES)),
        ["~hparams", "dataset=femnist", "strategy=fedprox"],
        ["dataset=mnist", "hparams=fedconcat_dir01", "strategy=moon"],
        ["initial=run", "initial.path=outputs/runs/digits/fedavg/1a2b3c4d"],
        ["strategy=fedaws", "strategy/server@strategy.server.base=fedyogi", "strategy/client=fedprox"],
        [
            "strategy=fedprox",
            "strategy.server={weighting: uniform}",
            "strategy.client.mu=1e-3",
            "targets=[0.5,0.6]",
            "name='a b'",
            "local.steps=null",
            "dataset=mnist",
            "data_dir=/x",
            "cache_dir=${data_dir}/cache",
        ],
    ],
    ids=" ".join,
)
def test_compositions(overrides: list[str]) -> None:
    plain = plain_composition(with_implied(overrides))
    by_hydra = hydra_config(overrides, None)
    composed = Composed.of(by_hydra, by_hydra.hydra)
    assert json.dumps(plain.config) == json.dumps(composed.config)
    assert plain.choices == composed.choices
    assert SweeperSettings.of(plain.sweeper) == sweeper_settings(by_hydra.hydra)


@pytest.mark.parametrize(
    "argument",
    [
        "strategy=none",
        "model.depth=3",
        "local={rate: 1}",
        "rounds=1,2",
        "seed=???",
        "name=${nothing}",
        "seed=${seed}",
        "local.lr=${local}",
        "name=${now:%Y}",
        "targets.0=0.5",
        "hydra/launcher=basic",
        "+strategy=fedavg",
        "+note=1",
        "~seed",
        "~strategy=moon",
        "~strategy",
        "strategy/server@nowhere=fedavg",
        "hparams=null",
        "rounds=[1",
    ],
)
def test_what_is_left_to_hydra(argument: str) -> None:
    with pytest.raises(NotPlainError):
        plain_composition([argument])


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_further_options_compose_as_with_hydra(tmp_path: Path) -> None:
    """An option with others in its defaults list, a setting, an experiment whose place is not in the first line, and a
    group that fedrun lacks.
    """
    write(
        tmp_path,
        {
            "strategy/strong": "defaults: [client: fedprox, server: fedavg]\nclient: {mu: 0.5}\n",
            "hparams/digits-strong": "# @package _global_\nlocal: {lr: 0.05}\n",
            "extra/one": "\n#  @package local\nmomentum: 0.5\n",
            "experiment/mine/table1": "\n# @package _global_\n"
            "defaults: [/extra: one, override /strategy: strong]\nrounds: 3\n",
        },
    )
    for overrides in (["strategy=strong"], ["experiment=mine/table1", "seed=3"]):
        plain = plain_composition(with_implied(overrides), tmp_path)
        by_hydra = hydra_config(overrides, tmp_path)
        composed = Composed.of(by_hydra, by_hydra.hydra)
        assert json.dumps(plain.config) == json.dumps(composed.config)
        assert plain.choices == composed.choices
        assert (plain.config["local"]["lr"], plain.config["strategy"]["client"]["mu"]) == (0.05, 0.5)
    assert plain.config["local"]["momentum"] == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "defaults: strong\n",
        "- 1\n",
        "a: [\n",
        "# @package a b\nclient: {}\n",
    ],
)
def test_further_options_of_another_form_are_left_to_hydra(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"strategy/strong": text})
    with pytest.raises(NotPlainError):
        plain_composition(["strategy=strong"], tmp_path)


def test_an_override_before_another_entry_is_left_to_hydra(tmp_path: Path) -> None:
    """Hydra rejects it."""
    below = {"extra/one": "# @package _global_\nrounds: 3\n"}
    for order, plain in (("/extra: one, override /model: mlp", True), ("override /model: mlp, /extra: one", False)):
        name = f"experiment/{'plain' if plain else 'other'}"
        write(tmp_path, {**below, name: f"# @package _global_\ndefaults: [{order}]\n"})
        with nullcontext() if plain else pytest.raises(NotPlainError):
            plain_composition([name.replace("/", "=")], tmp_path)


def test_the_later_of_two_files_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of values the file that is merged last; of options the file that stands last, unless an argument chooses."""
    write(
        tmp_path,
        {
            "config": "defaults: [_self_, model: a, first: x, second: y, third: z]\nv: 0\n",
            "model/a": "size: 1\n",
            "model/b": "size: 2\n",
            "model/c": "size: 3\n",
            "first/x": "# @package _global_\ndefaults: [override /model: b, _self_]\nv: 1\n",
            "second/y": "# @package _global_\ndefaults: [override /model: c]\nv: 2\n",
            "third/z": "# @package deep.er\nv: 3\n",
        },
    )
    monkeypatch.setattr(defaults_lists, "option_folders", lambda folder: [tmp_path])
    chosen: dict[str, str] = {}
    tree = defaults_lists.DefaultsTree(chosen, set())
    parts = [(part.option, part.package, part.content) for part in tree.parts()]
    assert parts == [
        ("config", "", {"v": 0}),
        ("c", "model", {"size": 3}),
        ("x", "", {"v": 1}),
        ("y", "", {"v": 2}),
        ("z", "deep.er", {"v": 3}),
    ]
    assert tree.choices == {"model": "c", "first": "x", "second": "y", "third": "z"}
    (own,) = [part for part in defaults_lists.DefaultsTree({"model": "a"}, set()).parts() if part.package == "model"]
    assert own.content == {"size": 1}
    (tmp_path / "model" / "a.yaml").write_text("size: 10\n")  # a changed file is read again
    (own,) = [part for part in defaults_lists.DefaultsTree({"model": "a"}, set()).parts() if part.package == "model"]
    assert own.content == {"size": 10}
