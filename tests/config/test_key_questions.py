"""``fedrun --explain KEY`` and ``fedrun ... --why KEY``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedrun.config.allowed_values import shown
from fedrun.config.composed import compose
from fedrun.config.composition_errors import dotted
from fedrun.config.key_reference import explain_key, key_entries
from fedrun.config.options import conf_dir, groups
from fedrun.config.sources import why
from fedrun.experiment.experiment import Experiment
from fedrun.system.errors import InputError

from ..helpers.forked import Fedrun

JOINING = re.compile(
    r"(about|above|after|and|as|at|before|below|beside|between|by|during|for|from|if|in|into|of|on|or|over|per|since|than|"
    r"that|through|to|under|until|when|where|which|whose|with|within|without) "
)
"""Prepositions, and other words that would join a comment to its key."""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of options whose values are known."""
    files = {
        "model/small.yaml": "# A small network.\n_target_: fedrun.models.mlp.MLP\nhidden: [3]  # units\n"
        "dropout: 0.25  # share\n",
        "dataset/mine.yaml": "# @package _global_\n# Mine.\ndefaults:\n  - override /model: small\n"
        "dataset:\n  _target_: fedrun.data.datasets.digits.Digits\nlocal: {lr: 0.7}\n",
    }
    for name, text in files.items():
        path = tmp_path / "own" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "own"


def test_every_place_that_sets_a_value_in_order(own: Path) -> None:
    overrides = ["dataset=mine", "local.lr=0.3"]
    assert why("local.lr", overrides, own).splitlines() == [
        "local.lr=0.3",
        "  0.1  conf/config.yaml",
        "  0.7  own/dataset/mine.yaml",
        "  0.3  command line",
    ]
    assert why("model.dropout", overrides, own).splitlines() == [
        "model.dropout=0.25",
        "  0.25  own/model/small.yaml",
    ]
    assert why("model", [*overrides, "model=logistic"], own).splitlines() == [
        "model=logistic",
        "  mlp       conf/config.yaml",
        "  small     own/dataset/mine.yaml",
        "  logistic  command line",
    ]


def test_interpolations_are_shown_as_they_are_written() -> None:
    assert why("dataset.data_dir", ["dataset=mnist", "data_dir=there"]).splitlines() == [
        "dataset.data_dir=there",
        "  ${data_dir}  conf/dataset/mnist.yaml",
    ]


def test_without_hparams_a_strategys_values_in_a_setting_set_nothing() -> None:
    assert why("strategy.client.mu", ["dataset=femnist", "strategy=fedprox"]).splitlines() == [
        "strategy.client.mu=0.02",
        "  0.01  conf/strategy/client/fedprox.yaml",
        "  0.02  conf/hparams.yaml (femnist-fedprox)",
    ]
    assert why("strategy.client.mu", ["dataset=femnist", "strategy=fedprox", "~hparams"]).splitlines() == [
        "strategy.client.mu=0.01",
        "  0.01  conf/strategy/client/fedprox.yaml",
    ]


def test_an_option_placed_below_another_one() -> None:
    assert why("strategy.server.base", ["strategy=turbosvm"]).splitlines() == [
        "strategy.server.base.weighting=samples",
        "  samples  conf/strategy/server/fedavg.yaml",
    ]


@pytest.mark.parametrize("overrides", [(), ("strategy=turbosvm", "dataset=femnist"), ("strategy=fedconcat",)])
def test_the_last_place_holds(overrides: tuple[str, ...]) -> None:
    """An independent count: the last value is what Hydra composed; none of these keys is an interpolation."""
    config = compose(overrides).config
    for part in ("local", "evaluation", "population"):
        blocks = re.findall(r"^(\S+)=(.*)\n((?:  .*\n)+)", why(part, overrides) + "\n", re.MULTILINE)
        assert [key for key, _, _ in blocks] == [f"{part}.{name}" for name in config[part] if name != "_target_"]
        for key, final, places in blocks:
            assert final == shown(config[part][key.rpartition(".")[2]])
            assert places.splitlines()[-1].split()[0] == final


def test_a_key_is_explained() -> None:
    assert explain_key("local.momentum", Experiment).splitlines() == [
        "local.momentum: momentum of sgd and nesterov, in [0, 1); "
        "restarts in every round, except in centralized and solo",
        "  allowed  a finite number, at least 0 and below 1",
        "  default  0.0",
    ]
    dropout = explain_key("model.dropout", Experiment)
    assert "  allowed  a finite number, at least 0 and below 1" in dropout
    assert " with model=mlp" in dropout
    assert explain_key("rounds", Experiment).splitlines()[1] == "  allowed  an integer, at least 1"
    assert "\n  gaussian    " in explain_key("attack", Experiment)
    assert "local.lr\n" in explain_key("local", Experiment)
    assert " with strategy/server=fedadam" in explain_key("strategy.server.base.lr", Experiment)


def test_an_option_of_ones_own_is_explained(own: Path) -> None:
    lines = explain_key("model.dropout", Experiment, own).splitlines()
    at = lines.index("model.dropout: share")
    assert lines[at + 2] == "  default  0.25 with model=small"


def test_why_in_a_sweep_without_jobs() -> None:
    with pytest.raises(InputError, match=r"^this sweep has no jobs: some key has no values, or "):
        why("local.lr", ["hydra.mode=MULTIRUN", "seed=range(0,0)"])


def test_a_class_that_cannot_be_imported_is_named_by_the_key_that_sets_it(own: Path) -> None:
    (own / "model" / "absent.yaml").write_text("_target_: nowhere.to.Find\nwidth: 3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^model\._target_=nowhere\.to\.Find: No module named 'nowhere'; allowed: "):
        explain_key("model.width", Experiment, own)


@pytest.mark.parametrize("defaults", ["", " 5"])
def test_a_file_of_another_form_does_not_end_the_explanation_of_a_key(own: Path, defaults: str) -> None:
    (own / "model" / "odd.yaml").write_text(f"defaults:{defaults}\n")
    assert "  default  0.25 with model=small" in explain_key("model.dropout", Experiment, own)


@pytest.mark.parametrize("text", ["# @package _global_.model\n", "\n# @package _global_\nmodel:\n  "])
def test_an_option_of_ones_own_may_say_its_place(own: Path, text: str) -> None:
    (own / "model" / "placed.yaml").write_text(f"{text}dropout: 0.75  # of units\n")
    assert "  default  0.75 with model=placed" in explain_key("model.dropout", Experiment, own).splitlines()
    assert "placed" in explain_key("model.dropout", Experiment, own).splitlines()[-1]


@pytest.mark.parametrize(
    ("key", "users"),
    [
        (
            "strategy.client.mu",
            "strategy=fedacg, fedamp, fedconcat_fesem, fednova, fedprox, fesem, heurfedamp, moon, moon_turbosvm; "
            "strategy/client=fedamp, fednova, fedprox, moon, moon_turbosvm",
        ),
        ("strategy.client.head_epochs", "strategy=fedrep; strategy/client=fedrep"),  # placed from the top
        ("strategy.client.difference", "strategy/client=perfedavg_hf"),  # no strategy chooses it
        (
            "strategy.server.base.weighting",  # an option below another one
            "strategy=fedaws, turbosvm, turbosvm_strict; strategy/server=fedaws, turbosvm",
        ),
        ("partition.beta", "partition=dirichlet, quantity_dirichlet"),
        ("dataset.window", "dataset=shakespeare"),
        ("dataset.label", "dataset=huggingface, tabular"),  # both in conf/dataset.yaml
        ("model.depth", "model=resnet18_cifar, resnet50_cifar"),  # the second one takes the first one's keys
        ("model.lora.rank", "model=custom, timm, torchvision, transformers"),
        ("appeal.steps", "appeal=warmup"),
    ],
)
def test_the_options_that_have_a_key(key: str, users: str) -> None:
    """By hand, from the defaults lists in conf/."""
    lines = explain_key(key, Experiment).splitlines()
    assert [line for line in lines if line.startswith("  used by")] == [f"  used by  {users}"]
    assert lines[-1].startswith("  used by")


@pytest.mark.parametrize("key", ["local.lr", "rounds", "targets", "partition.seed"])
def test_a_key_of_every_run_names_no_options(key: str) -> None:
    assert "  used by" not in explain_key(key, Experiment)


def test_an_option_has_the_keys_of_the_option_that_it_extends() -> None:
    lines = explain_key("privacy.sampling", Experiment).splitlines()
    assert lines[2:] == [
        "  default  poisson with privacy=user_level",
        "  default  poisson with privacy=user_level_adaptive",
        "  used by  privacy=user_level, user_level_adaptive",
    ]
    depth = explain_key("model.depth", Experiment).splitlines()
    assert depth[2:4] == ["  default  18 with model=resnet18_cifar", "  default  50 with model=resnet50_cifar"]


def test_an_option_of_ones_own_uses_keys(own: Path) -> None:
    assert "  used by  model=maxfl_mlp, mlp, small" in explain_key("model.dropout", Experiment, own).splitlines()


def test_a_key_without_a_comment_stands_alone(own: Path) -> None:
    (own / "model" / "bare.yaml").write_text("_target_: fedrun.models.mlp.MLP\nbreadth: 3\n", encoding="utf-8")
    assert explain_key("model.breadth", Experiment, own).splitlines()[0] == "model.breadth"


def test_values_that_strategies_give_come_behind_what_a_key_means() -> None:
    lines = explain_key("strategy.client.mu", Experiment).splitlines()
    changed = lines.index("strategy.client.mu: beta of the paper, >= 0: twice the factor of its code")
    assert lines[changed + 1] == "  default  0.002 with strategy=fedacg"
    assert lines.index("  default  0.01 with strategy/client=fedprox") < changed
    assert "strategy=apfl" not in explain_key("strategy.server.base.weighting", Experiment)


@pytest.mark.parametrize(
    "chosen", ["strategy=turbosvm", "strategy=fedconcat", "dataset=femnist", "dataset=tabular", "strategy=fednova"]
)
def test_every_key_has_an_explanation(chosen: str) -> None:
    entries, aliases = key_entries([conf_dir()])
    explained = {entry.key for entry in entries if entry.comment}
    for key in dotted(compose([chosen]).config):
        for alias, package in aliases.items():
            if key.startswith(f"{alias}."):
                key = f"{package}{key.removeprefix(alias)}"  # noqa: PLW2901 - the key as its own option has it
        above = any(entry.startswith(f"{key}.") for entry in explained)
        assert above or key in explained or key.replace(".", "/") in groups([conf_dir()]) or key in aliases, key


def test_no_explanation_begins_with_a_preposition() -> None:
    """It is read without its key, as in ``seed of the draw``; not ``of the draw``."""
    for entry in key_entries([conf_dir()])[0]:
        assert not JOINING.match(entry.comment), (entry.choice, entry.key, entry.comment)


def test_why_in_a_sweep() -> None:
    """A sweep's jobs are answered by their values; the sweep is one of the places that set them."""
    assert why("strategy.client.mu", ["experiment=fedconcat/table1", "dataset=fmnist", "strategy=fedprox,moon"]) == (
        """\
12 of 24 jobs, such as hparams=fedconcat_c2 strategy=fedprox seed=0:
strategy.client.mu=0.01
  0.01  conf/strategy/client/fedprox.yaml

12 of 24 jobs, such as hparams=fedconcat_c2 strategy=moon strategy.client.mu=0.1 seed=0:
strategy.client.mu=0.1
  1.0  conf/strategy/client/moon.yaml
  0.1  the sweep (hydra.sweeper)"""
    )
    one = ["experiment=demo", "strategy=turbosvm", "seed=1"]
    assert why("strategy", one) == ("strategy=turbosvm\n  fedavg    conf/config.yaml\n  turbosvm  command line")
    assert why("local.lr", ["experiment=turbosvm/tune", "scale=small"]).endswith(
        "\n  0.00001,0.0001,0.001,0.01,0.1,1.0  values that the search tries (hydra.sweeper.stages)"
    )


@pytest.mark.parametrize("ask", [lambda key: why(key, []), lambda key: explain_key(key, Experiment)])
@pytest.mark.parametrize(("key", "meant"), [("lr", "local.lr"), ("local.Lr", "local.lr"), ("strateg", "strategy")])
def test_an_unknown_key(ask, key: str, meant: str) -> None:
    with pytest.raises(InputError, match=rf"{key}: unknown key; .*; did you mean (.* )?{meant}"):
        ask(key)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (
            "--explain local.lr",
            0,
            "local.lr: learning rate of the first round, > 0\n  allowed  a finite number, above 0\n",
        ),
        ("local.lr=0.3 --why local.lr", 0, "local.lr=0.3\n  0.1  conf/config.yaml\n  0.3  command line\n"),
        ("--why=rounds rounds=7", 0, "rounds=7\n  30  conf/config.yaml\n  7   command line\n"),
        ("--why local.lrr", 2, "fedrun: --why local.lrr: unknown key; fedrun --cfg job shows all keys; did you mean"),
        ("--why local.lr local.lrr=2", 2, "fedrun: local.lrr: unknown key; allowed below local: lr, "),
        (
            "--why strategy=fedprox",
            2,
            "fedrun: --why strategy=fedprox: allowed: a key or a group without a value: --why strategy\n",
        ),
        (
            "--explain local.lr=0.1",
            2,
            "fedrun: --explain local.lr=0.1: allowed: a key or a group without a value: --explain local.lr\n",
        ),
        ("--explain", 2, "fedrun: argument --explain: expected one argument; fedrun --help shows what is allowed"),
        (
            "-m seed=0,1 --why seed",
            0,
            "1 of 2 jobs, such as seed=0:\nseed=0\n  0  conf/config.yaml\n  0  command line\n\n"
            "1 of 2 jobs, such as seed=1:\nseed=1\n  0  conf/config.yaml\n  1  command line\n",
        ),
        ("--multirun rounds=7 --why rounds", 0, "rounds=7\n  30  conf/config.yaml\n  7   command line\n"),
        (
            "-m hydra.sweeper.stages=[{local.lr:0.5}] --why local.lr",
            0,
            "local.lr=0.1\n  0.1  conf/config.yaml\n  0.5  values that the search tries (hydra.sweeper.stages)\n",
        ),
        ("-m seed=0,1 rounds=1,[2 --why seed", 2, "fedrun: rounds=1,[2: cannot be read; allowed: "),
        (
            f"--help --config-dir {'a' * 300}",
            2,
            f"fedrun: --config-dir={'a' * 300}: File name too long; allowed: a path that a file may have\n",
        ),
        ("-c job --why seed", 2, "fedrun: --cfg: cannot be combined with --why or --explain"),
    ],
)
def test_on_the_command_line(checking: Fedrun, tmp_path: Path, arguments: str, status: int, text: str) -> None:
    ended = checking(*arguments.split(), folder=tmp_path)
    assert (ended.status, ended.loaded, list(tmp_path.iterdir())) == (status, [], [])
    printed, other = (ended.err, ended.out) if status else (ended.out, ended.err)
    assert printed.startswith(text)
    assert other == ""
    assert not status or printed.count("\n") == 1


def test_keys_of_launchers_and_sweepers() -> None:
    assert explain_key("hydra.launcher.minutes", Experiment).endswith("default  240 with hydra/launcher=cluster")
    parameters = explain_key("hydra.launcher.parameters", Experiment).splitlines()  # its default is an empty mapping
    assert parameters[0].startswith("hydra.launcher.parameters: further parameters of submitit: ")
    assert parameters[1:] == ["  default  {} with hydra/launcher=cluster"]


def test_the_place_of_an_option_of_another_group_is_explained() -> None:
    assert explain_key("strategy.server.base", Experiment).startswith("strategy/server@strategy.server.base=OPTION\n  ")
