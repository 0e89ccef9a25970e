"""Search in stages: what is tried for which arm, what is chosen, and what is suggested."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from fedrun.config.composed import Composed, compose
from fedrun.config.experiments import experiment_sweep
from fedrun.config.hydra_config import hydra_options
from fedrun.config.key_reference import unknown_key
from fedrun.config.options import conf_dir, options, with_config_dir
from fedrun.config.overrides import parsed
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.report.papers.described_tables import tables
from fedrun.runs.outcome import Outcome
from fedrun.sweeps.search import (
    Trial,
    after_stage,
    arms,
    at_edge,
    check_arms,
    check_keys,
    check_stages,
    choice,
    examples,
    score,
    suggest,
    trials,
    untuned,
    with_arguments,
)
from fedrun.sweeps.sweep_checks import check_one_of, check_search, check_searcher
from fedrun.system.errors import InputError

from ..helpers.job_configs import job_config

METRIC = "validation/accuracy"
STAGES = ({"local.lr": "0.1,1.0"}, {"strategy.server.lr": "0.01,0.1,1.0"})
TUNES = [name for name in options("experiment") if name.endswith("/tune")]


def outcome(value: float | None, strategy: str = "a", **more: Any) -> Outcome:
    summary = {"dataset": "digits", "strategy": strategy, "final": {METRIC: value, **more}}
    return Outcome((), summary, None, setting="digits")


def knows(job: list[str], key: str) -> bool:
    return key == "local.lr" or "strategy=b" in job


def knows_all(job: list[str], key: str) -> bool:
    return True


def made() -> list[list[str]]:
    return [[f"strategy={name}", f"seed={seed}"] for name in "ab" for seed in (0, 1)]


def test_two_stages():
    found = arms(made())
    assert [(arm.overrides, arm.seeds) for arm in found] == [
        (("strategy=a",), (("seed=0",), ("seed=1",))),
        (("strategy=b",), (("seed=0",), ("seed=1",))),
    ]
    first = trials(found, STAGES[0], knows)
    assert [job for trial in first for job in trial.jobs][:4] == [
        ["strategy=a", "local.lr=0.1", "seed=0"],
        ["strategy=a", "local.lr=0.1", "seed=1"],
        ["strategy=a", "local.lr=1.0", "seed=0"],
        ["strategy=a", "local.lr=1.0", "seed=1"],
    ]
    # a: 0.3 and (0.9 + 0.1) / 2 = 0.5; b: 0.8, and one of its runs failed.
    failed = Outcome((), None, "diverged")
    found = after_stage(
        found,
        first,
        [outcome(v) for v in (0.2, 0.4, 0.9, 0.1)] + [outcome(0.8, "b"), outcome(0.8, "b"), failed, failed],
        METRIC,
    )
    assert [arm.chosen for arm in found] == [("local.lr=1.0",), ("local.lr=0.1",)]
    second = trials(found, STAGES[1], knows)
    assert next(job for trial in second for job in trial.jobs) == [
        "strategy=b",
        "local.lr=0.1",
        "strategy.server.lr=0.01",
        "seed=0",
    ]
    assert len(second) == 3  # for b alone
    found = after_stage(found, second, [outcome(v, "b") for v in (0.1, 0.1, 0.9, 0.9, 0.2, 0.2)], METRIC)
    assert found[1].chosen == ("local.lr=0.1", "strategy.server.lr=0.1")
    assert found[1].edges == ["local.lr=0.1"]  # the middle one of the second stage is at no edge
    assert found[0].scores == {("local.lr=0.1",): pytest.approx(0.3), ("local.lr=1.0",): 0.5}
    assert math.isnan(found[1].scores["local.lr=1.0",])
    assert choice(found[1], METRIC) == (
        "local.lr=0.1 strategy.server.lr=0.1: validation accuracy 90.00 %; at an end of its grid: local.lr=0.1"
    )


@pytest.mark.parametrize(("metric", "better"), [(METRIC, 0.8), ("validation/loss", 0.2)])
def test_a_stage_without_a_better_value_chooses_none(metric: str, better: float) -> None:
    (arm,) = arms([["strategy=b", "seed=0"]])
    for stage, reached in zip(STAGES, ((better, 0.5), (0.4, 0.6, 0.5)), strict=True):
        outcomes = [outcome(0.5, "b", **{metric: x}) for x in reached]
        (arm,) = after_stage([arm], trials([arm], stage, knows), outcomes, metric)
    assert (arm.chosen, arm.edges) == (("local.lr=0.1",), ["local.lr=0.1"])
    assert len(arm.scores) == 5
    assert choice(arm, metric).endswith("local.lr=0.1; no tried value of strategy.server.lr was better")


@pytest.mark.parametrize(("further", "chosen", "at_an_end"), [(0.9, "3.0", ["local.lr=3.0"]), (0.1, "1.0", [])])
def test_a_later_stage_with_further_values_of_a_key(further: float, chosen: str, at_an_end: list[str]) -> None:
    (arm,) = arms([["seed=0"]])
    for stage, reached in (({"local.lr": "0.1,1.0"}, (0.2, 0.5)), ({"local.lr": "0.5,3.0"}, (0.4, further))):
        tried = trials([arm], stage, knows)
        (arm,) = after_stage([arm], tried, [outcome(x) for x in reached], METRIC)
    assert [trial.jobs for trial in tried] == [(["local.lr=0.5", "seed=0"],), (["local.lr=3.0", "seed=0"],)]
    assert (arm.chosen, arm.edges) == ((f"local.lr={chosen}",), at_an_end)
    assert list(arm.scores) == [(f"local.lr={value}",) for value in ("0.1", "1.0", "0.5", "3.0")]


def test_a_value_that_is_listed_twice_is_tried_once() -> None:
    """0.1, 0.10 and 1e-1 are one run, as are 1 and 1.0. Two jobs at once would fail, and leave its value without a
    score."""
    (arm,) = arms([["seed=0"], ["seed=1"]])
    tried = trials([arm], {"local.lr": "0.1,0.10,1e-1,1,1.0,0.5"}, knows_all)
    assert [parsed(trial.values[0]).value() for trial in tried] == [0.1, 1.0, 0.5]


def test_seeds_of_other_data_have_no_mean() -> None:
    one, other = ({"dataset": "digits", "strategy": "a", "final": {METRIC: 0.5}, "data": data} for data in "xy")
    outcomes = [Outcome((), summary, None) for summary in (one, one, other)]
    assert score(outcomes[:2], METRIC) == 0.5
    assert math.isnan(score(outcomes, METRIC))


def test_values_that_are_no_texts():
    """A stage's values in YAML: null and lists are written as on the command line."""
    tried = trials(arms([["seed=0"]]), {"local.steps": None, "targets": [0.5, None]}, knows_all)
    assert [trial.values for trial in tried] == [("local.steps=null", "targets=[0.5,null]")]


@pytest.mark.parametrize("metric", ["validation/loss", "clients/loss_mean"])
def test_the_less_the_better_of_a_loss(metric):
    (arm,) = arms([["seed=0"]])
    tried = trials([arm], STAGES[0], knows_all)
    (arm,) = after_stage([arm], tried, [outcome(None, **{metric: loss}) for loss in (0.4, 2.0)], metric)
    assert arm.chosen == ("local.lr=0.1",)


@pytest.mark.parametrize(
    ("written", "at_an_end"),
    [
        ("0.1,0.5,0.001", {"0.5", "0.001"}),
        ("1e-2,0.009,10,9", {"0.009", "10"}),
        ("0.1", set()),
        ("sgd,adam,nesterov", {"sgd", "nesterov"}),
        ("5,null,1", {"5", "1"}),
    ],
)
def test_the_ends_of_a_grid(written: str, at_an_end: set[str]) -> None:
    """Of numbers the least and the largest, wherever they stand; of others the first and the last."""
    tried = [f"k={value}" for value in written.split(",")]
    assert {value for value in tried if at_edge(value, tried)} == {f"k={value}" for value in at_an_end}


def test_the_jobs_in_which_values_are_checked() -> None:
    """Of a later stage: at the first values of the stages before, and at none of them."""
    (arm,) = arms([["seed=3"], ["seed=4"]])
    stages = ({"local.lr": "0.1,0.2"}, {"x.y": "1"}, {"local.momentum": "0.5"})
    assert list(examples(arm, stages, {"local": {"lr": 0.3, "momentum": 0.0}})) == [
        (("local.lr=0.1",), [["local.lr=0.1", "seed=3"]]),
        (("local.lr=0.2",), [["local.lr=0.2", "seed=3"]]),
        (
            ("local.momentum=0.5",),
            [["local.lr=0.1", "local.momentum=0.5", "seed=3"], ["local.momentum=0.5", "seed=3"]],
        ),
    ]


def test_values_that_one_of_the_jobs_can_have() -> None:
    def built(job: list[str]) -> tuple[Composed, Experiment]:
        if "wrong" in job:
            raise InputError(f"{job[0]}=0: allowed: 1")
        return composed, experiment

    composed = compose()
    experiment = build_experiment(composed)
    experiment = replace(experiment, local=replace(experiment.local, eps=0.1))
    check_one_of([["a", "wrong"], ["a"]], (), built)
    with pytest.raises(InputError, match=r"^a=0: allowed: 1 \(a job of the search: a wrong\)$"):
        check_one_of([["a", "wrong"], ["b", "wrong"]], (), built)
    with pytest.raises(InputError, match=r"^local.eps=0.1: has no effect with .* \(a job of the search: a\)$"):
        check_one_of([["a"]], ("local.eps=0.1",), built)


@pytest.mark.parametrize(
    ("sweeper", "argument", "message"),
    [
        (
            {"direction": ["maximize", "minimize"]},
            "a=1",
            "hydra.sweeper.direction=[maximize,minimize]: a job returns one number, ",
        ),
        (
            {"direction": "up"},
            "a=1",
            "hydra.sweeper.direction=up: a job returns one number, accuracy; allowed: maximize",
        ),
        ({"direction": "minimize"}, "a=1", "hydra.sweeper.direction=minimize: a job returns one number, accuracy; "),
        ({"n_trials": 0}, "a=1", "hydra.sweeper.n_trials=0: allowed: an integer, at least 1"),
        ({"n_jobs": 0}, "a=1", "hydra.sweeper.n_jobs=0: allowed: an integer, at least 1"),
        (
            {},
            "a=interval(1,0.1)",
            "a=interval(1,0.1): allowed: interval(LEAST,LARGEST), on a logarithmic scale above 0",
        ),
        (
            {},
            "a=tag(log,interval(0,1))",
            "a=tag(log,interval(0,1)): allowed: interval(LEAST,LARGEST), on a logarithmic",
        ),
    ],
)
def test_settings_with_which_optuna_cannot_search(sweeper: dict[str, Any], argument: str, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        check_searcher(OmegaConf.create(sweeper), [parsed(argument)], "accuracy")
    assert str(refusal.value).startswith(message)


def test_settings_with_which_optuna_searches() -> None:
    overrides = [parsed(text) for text in ("a=tag(log,interval(0.1,1))", "b=interval(0,1)", "c=1,2", "d=x")]
    for direction, metric in (("maximize", "accuracy"), (["minimize"], "mae")):
        check_searcher(OmegaConf.create({"direction": direction, "n_trials": 1, "n_jobs": 2}), overrides, metric)
    check_searcher(OmegaConf.create({}), overrides, "accuracy")
    for direction in ("maximize", "minimize"):
        check_searcher(OmegaConf.create({"direction": direction}), overrides, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dataset=custom"], "dataset.target: has no default; fedrun --explain dataset.target"),
        (["dataset=custom", "dataset.target=a.b,c.d"], None),
        (["dataset=digits,fmnist"], None),
        (["local.lr=0.1,0.2"], "hydra.sweeper.direction=minimize: a job returns one number, accuracy; allowed: max"),
    ],
)
def test_the_score_of_a_search_is_that_of_its_dataset_unless_the_search_chooses_it(
    arguments: list[str], message: str | None
) -> None:
    config = OmegaConf.create({"hydra": {"job": {"config_name": "config"}, "sweeper": {"direction": "minimize"}}})
    with hydra_options(None), pytest.raises(InputError, match=message) if message else nullcontext():
        check_search(config, [*arguments, "validation.share=0.1"], GlobalHydra.instance().config_loader())


def test_jobs_that_differ_in_a_tuned_key_only() -> None:
    """Both would try the same rates: each run would be computed twice, or fail while the other one computes it."""
    jobs = [[f"strategy={name}", f"local.lr={lr}", "seed=0"] for name, lr in (("a", 0.1), ("b", 0.2), ("a", 0.3))]
    check_arms(jobs[:2], STAGES)
    check_arms(jobs, [{"local.momentum": "0.0,0.9"}])
    with pytest.raises(InputError, match=r"a key that is tuned \(local.lr=0.1, local.lr=0.3\); allowed: one$"):
        check_arms(jobs, STAGES)


def test_keys_of_other_strategies_are_left_out() -> None:
    """fedadam's server has a rate, at its place and below TurboSVM-FL's; these jobs have local.lr alone."""
    stages = ({"local.lr": "0.1"}, {"strategy.server.lr": "0.1"}, {"strategy.server.base.lr": "0.1"})
    check_keys(stages, [{"local": {"lr": 0.3}}], [conf_dir()])
    with pytest.raises(InputError, match="no job has any of the keys local.lr, strategy.server.lr, "):
        check_keys(stages, [{"rounds": 3}], [conf_dir()])


def test_where_everything_failed_nothing_is_chosen():
    (arm,) = arms([["seed=0"]])
    (arm,) = after_stage([arm], trials([arm], STAGES[0], knows_all), [outcome(None), outcome(None)], METRIC)
    assert (arm.chosen, arm.edges) == ((), [])
    assert choice(arm, METRIC) == "nothing chosen, because every trial failed"


def test_values_asked_for_on_the_command_line():
    arguments = ["local.lr=0.5,0.7", "rounds=3"]
    assert untuned(arguments, STAGES) == ["rounds=3"]
    assert [with_arguments(stage, arguments) for stage in STAGES] == [{"local.lr": "0.5,0.7"}, STAGES[1]]


def test_a_plus_before_a_key_that_is_asked_for():
    assert untuned(["++local.lr=0.5", "+seed=3", "~hparams"], STAGES) == ["+seed=3", "~hparams"]
    assert with_arguments(STAGES[0], ["++local.lr=0.5"]) == {"local.lr": "0.5"}
    (arm,) = arms([["strategy=a", "++seed=0"], ["strategy=a", "++seed=1"]])
    assert (arm.overrides, arm.seeds) == (("strategy=a",), (("++seed=0",), ("++seed=1",)))


def test_a_suggestion_is_an_option_of_hparams(tmp_path):
    found = arms(made())
    tried = trials(found, STAGES[0], knows)
    found = after_stage(found, tried, [outcome(v) for v in (0.2, 0.4, 0.9, 0.1)] + [outcome(0.8)] * 4, METRIC)
    paths = list(suggest(found, METRIC, "fedrun experiment=x", tmp_path / "hparams"))
    assert [path.name for path in paths] == ["digits-a.1.yaml", "digits-a.2.yaml"]  # no run takes either by itself
    text = paths[0].read_text()
    assert text.startswith("# @package _global_\n# Suggested by: fedrun experiment=x\n# For: strategy=a\n")
    assert "seeds 0, 1:\n#   local.lr=0.1: 30.00 %\n#   local.lr=1.0: 50.00 %\n" in text
    assert OmegaConf.to_container(OmegaConf.load(paths[0])) == {"local": {"lr": 1.0}}


def test_a_suggestion_after_a_command_of_several_lines_can_be_used(tmp_path: Path) -> None:
    notes = "tracking.notes='first\nsecond'"
    (arm,) = arms([[notes]])
    (arm,) = after_stage([arm], trials([arm], {"local.lr": "0.5"}, knows_all), [outcome(0.5)], METRIC)
    (path,) = suggest([arm], METRIC, f"fedrun {notes}", tmp_path / "hparams")
    text = path.read_text()
    assert "# Suggested by: fedrun tracking.notes='first\n# second'\n# For: tracking.notes='first\n# second'\n" in text
    assert OmegaConf.load(path) == {"local": {"lr": 0.5}}


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("local={lr:0.5,momentum:0.9}", {"local": {"lr": 0.5, "momentum": 0.9}}),  # a key with a colon in YAML
        ("partition.of=yes", {"partition": {"of": "yes"}}),  # true in YAML
        (r"name='it\'s'", {"name": "it's"}),  # not to be read in YAML
        ("targets=[0.5,test/loss:1]", {"targets": [0.5, "test/loss:1"]}),
    ],
)
def test_a_suggestion_has_the_values_of_the_runs(tmp_path: Path, override: str, value: dict[str, Any]) -> None:
    """The command line's values are Hydra's, not YAML's."""
    (arm,) = arms([["seed=0"]])
    (arm,) = after_stage([arm], [Trial(arm, (override,), (["seed=0"],))], [outcome(0.5)], METRIC)
    (path,) = suggest([arm], METRIC, "fedrun", tmp_path / "hparams")
    assert OmegaConf.load(path) == value


def test_a_suggestion_replaces_the_option_of_its_name(tmp_path: Path) -> None:
    """celeba-fedadam in conf/hparams.yaml: strategy.server.lr=0.001 and buffers=frozen. The rate alone is tuned."""
    (arm,) = arms([["seed=0"]])
    tried = trials([arm], {"strategy.server.lr": "0.5"}, knows_all)
    summary = {"dataset": "celeba", "strategy": "fedadam", "hparams": "celeba-fedadam", "final": {METRIC: 0.5}}
    (arm,) = after_stage([arm], tried, [Outcome((), summary, None, setting="celeba")], METRIC)
    (path,) = suggest([arm], METRIC, "fedrun", tmp_path / "hparams")
    assert path.name == "celeba-fedadam.yaml"
    assert OmegaConf.load(path) == {"strategy": {"server": {"lr": 0.5, "buffers": "frozen"}}}
    server = compose(["dataset=celeba", "strategy=fedadam"], tmp_path).config["strategy"]["server"]
    assert (server["lr"], server["buffers"]) == (0.5, "frozen")


def test_earlier_suggestions_in_the_folder_are_removed_but_not_in_the_users_own(tmp_path: Path) -> None:
    folder = tmp_path / "hparams"
    (first,) = arms([["seed=0"]])
    (first,) = after_stage([first], trials([first], {"local.lr": "0.5"}, knows_all), [outcome(0.5)], METRIC)
    (tmp_path / "link").symlink_to(tmp_path)
    with with_config_dir(tmp_path / "link"):
        suggest([first], METRIC, "fedrun", folder)
        suggest([replace(first, run=("digits", "b"))], METRIC, "fedrun", folder)
    assert sorted(path.name for path in folder.iterdir()) == ["digits-a.yaml", "digits-b.yaml"]
    suggest([first], METRIC, "fedrun", folder)
    assert [path.name for path in folder.iterdir()] == ["digits-a.yaml"]


def test_no_suggestion_of_a_papers_search_replaces_a_setting_of_every_strategy(tmp_path: Path) -> None:
    """FedUmf's search runs in the setting fedumf_mnist, so FedUmf's rate is the option fedumf_mnist-fedumf."""
    assert compose(["dataset=digits"]).setting == "digits"
    setting = compose(["experiment=fedumf/tune", "strategy=fedumf", "hydra.mode=RUN"]).setting
    (arm,) = arms([["strategy=fedumf"]])
    tried = trials([arm], {"local.lr": "0.25"}, knows_all)
    (arm,) = after_stage([arm], tried, [replace(outcome(0.5, "fedumf"), setting=setting)], METRIC)
    suggest([arm], METRIC, "fedrun", tmp_path / "hparams")
    rates = [
        compose(["experiment=fedumf/table1", f"strategy={name}", "hydra.mode=RUN"], tmp_path).config["local"]["lr"]
        for name in ("fedumf", "fedavg")
    ]
    assert rates == [0.25, 0.05]


@pytest.mark.parametrize("name", TUNES)
@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
def test_every_papers_search_holds_validation_data_out(name, scale):
    config = job_config([f"experiment={name}", f"scale={scale}"])
    assert build_experiment(config).validation.share > 0
    assert config["name"] == (name if scale == "full" else f"{name}/{scale}")
    searched = experiment_sweep(name).sweeper.at(scale).stages
    assert searched and all("," in values for stage in searched for values in stage.values())
    check_stages(searched)
    assert not any(unknown_key(key, [conf_dir()]) for stage in searched for key in stage)


def test_every_paper_has_a_search():
    papers = {name.partition("/")[0] for name in tables()}
    assert sorted(f"{paper}/tune" for paper in papers) == TUNES


def test_a_seed_that_failed_leaves_no_score():
    """0.9 of one seed is not a mean of two: the rate whose seeds both ran is chosen."""
    (arm,) = arms([["seed=0"], ["seed=1"]])
    failed = Outcome((), None, "diverged")
    tried = trials([arm], STAGES[0], knows_all)
    (arm,) = after_stage([arm], tried, [outcome(0.3), outcome(0.5), outcome(0.9), failed], METRIC)
    assert arm.chosen == ("local.lr=0.1",) and np.isnan(arm.scores["local.lr=1.0",])
