"""Options that stand together in one file, such as ``conf/strategy.yaml``."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir

from fedrun.config.composed import compose
from fedrun.config.defaults_lists import DefaultsTree
from fedrun.config.key_reference import explain_key
from fedrun.config.options import conf_dir, files_in, listed, option_files, options
from fedrun.config.sources import why
from fedrun.experiment.experiment import Experiment
from fedrun.system.errors import InputError


def test_they_are_options_of_the_group() -> None:
    assert {"fedprox", "fedconcat"} <= set(options("strategy"))
    assert option_files("strategy")["fedprox"] == conf_dir() / "strategy.yaml"
    assert option_files("strategy")["solo"] == conf_dir() / "strategy" / "solo.yaml"
    assert not listed("config") and not listed("no_such_group")


def test_the_comment_above_explains_one() -> None:
    lines = [" ".join(line.split()) for line in explain_key("strategy", Experiment).splitlines()]
    assert "fedprox FedProx: FedAvg with a proximal term (Li et al., 2020)." in lines
    for group in ("strategy", "hparams"):
        _, *options = explain_key(group, Experiment).splitlines()
        assert all(len(option.split()) > 1 for option in options)


def test_no_option_stands_twice() -> None:
    for group in ("strategy", "hparams"):
        assert {path.stem for path in (conf_dir() / group).glob("*.yaml")}.isdisjoint(listed(group))


def test_why_names_the_file_and_the_option() -> None:
    assert why("strategy/client", ["strategy=fedprox"]).splitlines() == [
        "strategy/client=fedprox",
        "  fedprox  conf/strategy.yaml (fedprox)",
    ]
    assert why("strategy.client.mu", ["strategy=fedprox", "dataset=femnist"]).splitlines() == [
        "strategy.client.mu=0.02",
        "  0.01  conf/strategy/client/fedprox.yaml",
        "  0.02  conf/hparams.yaml (femnist-fedprox)",
    ]


def test_a_file_of_ones_own_replaces_a_listed_one_and_no_file(tmp_path: Path) -> None:
    """fedprox is in a list, solo has its own file."""
    own = tmp_path / "own" / "strategy"
    own.mkdir(parents=True)
    for name in ("fedprox", "solo", "mine"):
        (own / f"{name}.yaml").write_text("defaults: [client: moon, server: fedavgm]\n")
    with pytest.raises(InputError, match=r"solo.yaml: fedrun has an option of this name, and would use it"):
        compose(["strategy=solo"], own.parent)
    for name in ("fedprox", "mine"):
        assert compose([f"strategy={name}"], own.parent).choices["strategy/server"] == "fedavgm"
        assert why("strategy/client", [f"strategy={name}"], own.parent).splitlines() == [
            "strategy/client=moon",
            f"  moon  own/strategy/{name}.yaml",
        ]
        parts = DefaultsTree({}, set(), own.parent).parts_of("strategy", name)
        assert "moon" in [part.option for part in parts]
    assert option_files("strategy", own.parent)["fedprox"] == own / "fedprox.yaml"
    assert option_files("strategy", own.parent)["solo"] == conf_dir() / "strategy" / "solo.yaml"


def test_the_order_of_folders_does_not_matter(tmp_path: Path) -> None:
    own = tmp_path / "hparams"
    own.mkdir()
    for name in ("femnist-fedprox", "femnist"):
        (own / f"{name}.yaml").write_text("# @package _global_\nlocal: {lr: 0.7}\n")
    for folders in ([tmp_path, conf_dir()], [conf_dir(), tmp_path]):
        files = files_in("hparams", folders)
        assert files["femnist-fedprox"] == own / "femnist-fedprox.yaml"
        assert files["femnist"] == conf_dir() / "hparams" / "femnist.yaml"


def test_other_applications_of_hydra_do_not_have_them(tmp_path: Path) -> None:
    compose()
    (tmp_path / "strategy").mkdir()
    (tmp_path / "config.yaml").write_text("defaults: [_self_, optional strategy: fedprox]\nx: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert hydra_compose("config") == {"x": 1}
