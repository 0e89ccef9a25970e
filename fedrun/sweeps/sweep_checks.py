"""Checks of a sweep before its first job starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from fedrun.config.allowed_values import in_message
from fedrun.config.build import build
from fedrun.config.defaults_entry import entry_of
from fedrun.config.no_effect import Unused, without_effect
from fedrun.config.options import HYDRA_GROUPS, config_dir_option, content, option_files, option_folders
from fedrun.config.overrides import key_of, typed, without_implied
from fedrun.config.sweeper import GRIDS
from fedrun.data.tasks.metric_names import lower_is_better
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override

    from fedrun.config.as_config import Plain
    from fedrun.config.composed import Composed
    from fedrun.config.grids import Grid, Job
    from fedrun.experiment.experiment import Experiment
    from fedrun.sweeps.search import Values

WITHOUT_VALIDATION = "validation.share=0: a search needs samples to judge by; set it above 0, such as to 0.1"
"""The message that rejects a search which would choose settings by the test set."""

EXPERIMENT = "experiment"

BY_NUMBER = "${hydra.job.num}"
"""The folder of a job's outcome, below the sweep's folder."""


def check_sweep(config: DictConfig) -> None:
    """Reject a sweep that cannot be run as it is described, or one of whose jobs is invalid.

    Args:
        config: Hydra's configuration of the sweep.

    Raises:
        InputError: naming the key and what is allowed.
    """
    from fedrun.config.composition_errors import composing

    with composing(typed(config.hydra.overrides.hydra)):  # Hydra's settings may refer to missing keys
        Path(config.hydra.sweep.dir)
        _check_plugins(config)
    _check_experiment(config)
    _check_folders(config)
    _check_jobs(config)


def _check_plugins(config: DictConfig) -> None:
    """Reject a sweeper or a launcher that Hydra does not accept, and a launcher's numbers that are not positive."""
    for name in ("sweeper", "launcher"):
        settings = config.hydra.get(name)  # None: left out
        target = settings.get("_target_") if isinstance(settings, DictConfig) else settings
        if not str(target).startswith(("hydra_plugins.", "hydra._internal.core_plugins.")):  # Hydra accepts no others
            raise InputError(f"hydra.{name}: {in_message(target)} is not a {name}; allowed: hydra/{name}=OPTION")
    launcher = config.hydra.launcher
    for key, or_null in (("jobs", "; or null"), ("minutes", ""), ("at_once", "")):
        number = launcher.get(key)
        if key in launcher and not (or_null and number is None) and (type(number) is not int or number < 1):
            raise InputError(f"hydra.launcher.{key}={in_message(number)}: allowed: an integer, at least 1{or_null}")


def _check_experiment(config: DictConfig) -> None:
    """Reject an experiment with a sweeper or a launcher of its own that would not be used.

    Hydra prefers the override of config.yaml, so that only the command line can choose another one.
    """
    name, files = config.hydra.runtime.choices.get(EXPERIMENT), option_files(EXPERIMENT)
    if name not in files:
        return
    on_command_line = {key_of(argument) for argument in typed(config.hydra.overrides.hydra)}
    for line in content(EXPERIMENT, name, files[name]).get("defaults", ()):
        entry = entry_of(line, EXPERIMENT)
        if entry is None or not entry.override or entry.group not in HYDRA_GROUPS or entry.group in on_command_line:
            continue
        if entry.option != config.hydra.runtime.choices[entry.group]:
            choice = f"{entry.group}={entry.option}"
            raise InputError(
                f"{EXPERIMENT}={name}: chooses {choice}, which only the command line can; add {choice} there"
            )


def _check_folders(config: DictConfig) -> None:
    """Reject folders from which the jobs' outcomes could not be read again."""
    sweep_settings = OmegaConf.to_container(config.hydra.sweep, resolve=False)
    assert isinstance(sweep_settings, dict)
    if not sweep_settings["dir"]:
        raise InputError("hydra.sweep.dir='': allowed: a folder; hydra.sweep.dir=. is the current one")
    if (subdir := sweep_settings["subdir"]) != BY_NUMBER:
        raise InputError(f"hydra.sweep.subdir={subdir}: allowed: {BY_NUMBER}, a folder for each job; leave it out")


def _check_jobs(config: DictConfig) -> None:
    """Reject a sweep without jobs, with an invalid one, or with two that are the same run.

    For a sweeper that creates its jobs while it searches, the settings that all jobs have in common are checked.
    """
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    from fedrun.config.composed import Composed, compose_plainly
    from fedrun.config.composition_errors import composing
    from fedrun.config.grids import NO_JOBS, unseeded
    from fedrun.experiment.experiment import build_experiment
    from fedrun.sweeps.search import check_arms, check_keys, check_metric, check_stages, planned

    loader = GlobalHydra.instance().config_loader()
    arguments = typed(config.hydra.overrides.task)
    if searches(config.hydra.sweeper):
        check_search(config, arguments, loader)
        return
    with composing(arguments):
        known, searched = planned(config, loader)
        check_stages(searched)
        check_arms(known, searched)
    if not known:
        raise InputError(NO_JOBS)
    folders: dict[Path, int] = {}
    further = config_dir_option()

    def built(job: Job) -> tuple[Composed, Experiment]:
        composed = None if further else compose_plainly(job)
        if composed is None:
            with composing(job):
                loaded = loader.load_configuration(config.hydra.job.config_name, list(job), RunMode.RUN)
            composed = Composed.of(loaded, loaded.hydra)
        experiment = build_experiment(replace(composed, sweep=Path(config.hydra.sweep.dir).name))
        check_job(experiment)
        return composed, experiment

    configs: dict[Values, Plain] = {}
    unused: list[tuple[Sequence[str], Mapping[str, Unused]]] = []
    for number, job in enumerate(known):
        try:
            composed, experiment = built(job)
            if searched and experiment.validation.evaluation_split == "test":
                raise InputError(WITHOUT_VALIDATION)
            if searched:
                check_metric(config.hydra.sweeper.metric, experiment.dataset.spec.task)
            if (folder := composed.config["output_dir"]) != config.output_dir:
                raise InputError(several_folders(folder))
        except InputError as error:
            raise InputError(f"{error} (job {number} of the sweep: {' '.join(without_implied(job))})") from error
        if (same := folders.setdefault(experiment.folder, number)) != number:
            differing = " nor ".join(sorted({*job} ^ {*known[same]}))
            raise InputError(
                f"jobs {same} and {number} of the sweep are the same run: neither {differing} changes its result"
            )
        configs.setdefault(unseeded(job), composed.config)
        unused.append((composed.overrides, without_effect(experiment, composed.overrides)))
    reject_unused(unused, {key for stage in searched for key in stage})
    if searched:
        check_keys(searched, configs.values(), option_folders(further))
        check_tried(known, searched, configs, built)


def reject_unused(jobs: Sequence[tuple[Sequence[str], Mapping[str, Unused]]], tuned: Set[str]) -> None:
    """Reject an override that has no effect in any job of a sweep that has it.

    Args:
        jobs: the overrides of each job, and those without effect.
        tuned: keys to which a search gives values, by which an override may have an effect.

    Raises:
        InputError: there is such an override.
    """
    used = {override for overrides, unused in jobs for override in overrides if override not in unused}
    for override, unused in (item for _, of_job in jobs for item in of_job.items()):
        if override not in used and tuned.isdisjoint(unused.others):
            raise InputError(f"{unused.message} (in every job of the sweep)")


def check_tried(
    known: Sequence[Job],
    searched: Sequence[Grid],
    configs: Mapping[Values, Plain],
    built: Callable[[Job], tuple[Composed, Experiment]],
) -> None:
    """Reject a search some of whose values fit no job.

    Args:
        known: the jobs without the values of the search.
        searched: stages of the search.
        configs: the configuration of one job of each arm.
        built: builds a job.

    Raises:
        InputError: that of the first job that has these values.
    """
    from fedrun.sweeps.search import arms, examples

    seen: set[Values] = set()  # what one arm may try, others may, too
    for arm in arms(known):
        for tried, jobs in examples(arm, searched, configs[arm.overrides]):
            if tried not in seen:
                seen.add(tried)
                check_one_of(jobs, tried, built)


def check_one_of(jobs: Sequence[Job], tried: Values, built: Callable[[Job], tuple[Composed, Experiment]]) -> None:
    """Reject a search if none of these jobs, which try the same values, can be built and is changed by the values.

    Raises:
        InputError: that of the first of them.
    """
    errors = []
    for job in jobs:
        try:
            _, experiment = built(job)
            for unused in without_effect(experiment, tried).values():
                raise InputError(unused.message)
            return
        except InputError as error:
            errors.append(InputError(f"{error} (a job of the search: {' '.join(without_implied(job))})"))
    raise errors[0]


def check_job(experiment: Experiment) -> None:
    """Reject an experiment that cannot be a job of a sweep.

    Raises:
        InputError: it needs several processes.
    """
    processes = experiment.hardware.processes
    if isinstance(processes, int) and processes > 1:
        raise InputError(f"hardware.processes={processes}: a job of a sweep has one process; allowed: auto, 1")


def check_search(config: DictConfig, arguments: Sequence[str], loader: ConfigLoader) -> None:
    """Reject a sweeper that would search on test samples, or try several folders.

    Args:
        config: Hydra's configuration of the sweep.
        arguments: arguments of the command line.
        loader: Hydra's.

    Raises:
        InputError: it would, or the settings that all jobs have in common cannot be composed.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.types import RunMode

    from fedrun.config.composed import resolved
    from fedrun.config.composition_errors import composing

    with composing(arguments):
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(arguments))
        common = [str(override.input_line) for override in overrides if not override.is_sweep_override()]
        composed = loader.load_configuration(config.hydra.job.config_name, common, RunMode.RUN)
    if not composed.validation.share:
        raise InputError(WITHOUT_VALIDATION)
    tried = dict(config.hydra.sweeper.get("params") or {})
    tried |= {
        key_of(override.get_key_element()): override.value() for override in overrides if override.is_sweep_override()
    }
    if "output_dir" in tried:
        raise InputError(several_folders(tried["output_dir"]))
    score = None
    if {"dataset", "experiment"}.isdisjoint(key.partition(".")[0] for key in tried):  # these choose the task
        score = build(resolved(composed.dataset), "dataset").spec.task.score
    check_searcher(config.hydra.sweeper, overrides, score)


def check_searcher(sweeper: Mapping[str, Any], overrides: Sequence[Override], score: str | None) -> None:
    """Reject settings with which a sweeper such as Optuna's cannot search, or would choose the worst values. Its own
    messages do not name the keys.

    Args:
        sweeper: its settings.
        overrides: those of the command line.
        score: the metric that a job returns, such as ``accuracy``; None: it differs between the jobs.

    Raises:
        InputError: there is such a setting.
    """
    from hydra.core.override_parser.types import IntervalSweep

    if (direction := sweeper.get("direction")) is not None:
        wanted = list(direction) if isinstance(direction, ListConfig) else [direction]
        names = [str(getattr(one, "name", one)) for one in wanted]
        better = ["maximize", "minimize"] if score is None else ["minimize" if lower_is_better(score) else "maximize"]
        if len(names) != 1 or names[0] not in better:
            given = in_message(names if isinstance(direction, ListConfig) else names[0])
            returned = f"one number{f', {score}' if score else ''}"
            raise InputError(f"hydra.sweeper.direction={given}: a job returns {returned}; allowed: {', '.join(better)}")
    for key in ("n_trials", "n_jobs"):
        if isinstance(number := sweeper.get(key), int) and number < 1:
            raise InputError(f"hydra.sweeper.{key}={number}: allowed: an integer, at least 1")
    for override in overrides:
        tried = override.value()
        if not isinstance(tried, IntervalSweep):
            continue
        least, largest = tried.start, tried.end
        if least is None or largest is None or least > largest or ("log" in tried.tags and least <= 0):
            wrong = in_message(override.input_line)
            raise InputError(f"{wrong}: allowed: interval(LEAST,LARGEST), on a logarithmic scale above 0")


def several_folders(value: Any) -> str:
    """The message that rejects a value of ``output_dir`` that differs between the jobs of a sweep."""
    return f"output_dir={in_message(value)}: a sweep has one folder; allowed: one value on the command line"


def searches(sweeper: Mapping[str, Any]) -> bool:
    """Whether a sweeper, given by its settings, chooses further jobs by the accuracy that a job returns.

    fedrun's own search reads metrics from the jobs' outcomes instead. Hydra's basic sweeper runs given jobs.
    """
    return sweeper["_target_"] not in (GRIDS, "hydra._internal.core_plugins.basic_sweeper.BasicSweeper")
