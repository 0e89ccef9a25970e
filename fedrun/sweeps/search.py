"""Search for settings as in the papers: in stages, each a grid at the best values of the stages before, compared on
validation samples. The result is a suggestion of hyper-parameters in a folder with which ``--config-dir SWEEP`` makes
them the strategy's own values; nothing below ``conf/`` is written.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import HydraException
from omegaconf import OmegaConf

from fedrun.config.allowed_values import in_message
from fedrun.config.as_config import Plain
from fedrun.config.composed import HPARAMS
from fedrun.config.dotted_keys import NO_VALUE, dotted, value_at
from fedrun.config.grids import Grid, Job, arguments_of, jobs, meaning, unseeded, values
from fedrun.config.identity import IRRELEVANT
from fedrun.config.key_reference import unknown_key
from fedrun.config.options import config_dir_option, content, option_files, options
from fedrun.config.overrides import key_of, parsed, typed, without_implied
from fedrun.config.sweeper import sweeper_settings
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.metric_names import lower_is_better
from fedrun.runs.display import wording
from fedrun.runs.outcome import Outcome
from fedrun.system.atomic_file import atomic_write
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

STAGES = "hydra.sweeper.stages"

SUGGESTED_BY = "Suggested by: "
"""The beginning of a suggestion's second line."""

Values = tuple[str, ...]
"""Overrides that a stage chooses together, such as ``("local.lr=0.1",)``."""

Knows = Callable[[Job, str], bool]
"""Whether the configuration of a job has a key."""


@dataclass(frozen=True)
class Arm:
    """Jobs of a sweep that differ in their seed only, and are tuned together.

    Attributes:
        overrides: overrides of all its jobs; no two arms of a sweep have the same.
        seeds: the overrides that differ.
        chosen: the values chosen by the stages so far, one for each key.
        scores: for all values of all trials the mean metric over the seeds; NaN if a run failed or has none.
        run: setting and strategy of its runs; None before the first.
    """

    overrides: Values
    seeds: tuple[Values, ...]
    chosen: Values = ()
    scores: Mapping[Values, float] = field(default_factory=dict)
    run: tuple[str, str] | None = None

    @property
    def edges(self) -> list[str]:
        """Chosen values at an end of all that any stage has tried for their key; better ones may be beyond it."""
        tried = list(dict.fromkeys(value for values in self.scores for value in values))
        return [best for best in self.chosen if at_edge(best, [one for one in tried if key_of(one) == key_of(best)])]


@dataclass(frozen=True)
class Trial:
    """Values that are tried for an arm, and its jobs, one per seed."""

    arm: Arm
    values: Values
    jobs: tuple[Job, ...]


def arms(jobs: Iterable[Job]) -> list[Arm]:
    """Group the jobs of a sweep by all overrides except the seed."""
    seeds: dict[Values, list[Values]] = {}
    for job in jobs:
        seed = tuple(override for override in job if key_of(override) == "seed")
        seeds.setdefault(unseeded(job), []).append(seed)
    return [Arm(overrides, tuple(different)) for overrides, different in seeds.items()]


def untuned(arguments: Iterable[str], stages: Sequence[Grid]) -> list[str]:
    """The command line's arguments without values of tuned keys."""
    tuned = {key for stage in stages for key in stage}
    return [argument for argument in arguments if key_of(argument) not in tuned]


def planned(config: DictConfig, loader: ConfigLoader) -> tuple[list[Job], list[Grid]]:
    """The jobs of a sweep, without values of tuned keys, and the stages of its search; no stages: it is not a search.

    Values that the command line has for tuned keys replace those of the stages.

    Args:
        config: Hydra's configuration of the sweep.
        loader: Hydra's.

    Raises:
        InputError: there is no such scale, or a key below ``hydra.sweeper`` has a value that is not allowed.
        HydraException: a value cannot be read.
    """
    sweeper = sweeper_settings(config.hydra)
    stages = sweeper.at(config.scale).stages
    arguments = typed(config.hydra.overrides.task)
    known = jobs(sweeper, config.name, config.scale, untuned(arguments, stages), loader)
    return known, [with_arguments(stage, arguments) for stage in stages]


def check_stages(stages: Iterable[Grid]) -> None:
    """Reject stages without keys, keys that cannot be tuned, and values that cannot be read.

    Raises:
        InputError: there is such a stage.
    """
    for stage in stages:
        if not stage:
            raise InputError(f"{STAGES}: {{}}: allowed: keys with their values, such as {{local.lr: '0.1,1.0'}}")
        for key, tried in stage.items():
            if options(key.replace(".", "/")):
                raise InputError(f"{STAGES}: {key} is a group; a search tunes keys, such as local.lr")
            if key.partition(".")[0] in IRRELEVANT:
                raise InputError(f"{STAGES}: {key}: cannot be tuned; allowed: keys of a setting, such as local.lr")
            try:
                values(arguments_of({key: tried}), None)
            except (HydraException, ValueError):
                wrong = f"{in_message(key)}: {in_message(tried)}"
                raise InputError(f"{STAGES}: {wrong}: allowed: values with commas between them, as 0.1,1.0") from None


def check_arms(jobs: Iterable[Job], stages: Sequence[Grid]) -> None:
    """Reject jobs that differ in values of tuned keys only: their trials would be the same runs.

    Raises:
        InputError: there are such jobs.
    """
    first: dict[Values, Arm] = {}
    for arm in arms(jobs):
        before = first.setdefault(tuple(untuned(arm.overrides, stages)), arm)
        if differing := sorted({*arm.overrides} ^ {*before.overrides}):
            raise InputError(
                f"{STAGES}: the grids have several values of a key that is tuned ({', '.join(differing)}); allowed: one"
            )


def check_keys(stages: Sequence[Grid], configs: Iterable[Mapping[str, Any]], folders: Sequence[Path]) -> None:
    """Reject keys that nothing has. Keys of a strategy that no job has chosen are left out, if jobs have others.

    Args:
        stages: stages of the search.
        configs: configurations of the jobs.
        folders: folders of options.

    Raises:
        InputError: there is such a key, or no job has any.
    """
    known = {key for config in configs for key in dotted(config)}
    keys = [key for stage in stages for key in stage]
    for key in keys:
        if key not in known and (unknown := unknown_key(key, folders)):
            raise InputError(f"{STAGES}: {in_message(key)}: {unknown}")
    if known.isdisjoint(keys):
        raise InputError(f"{STAGES}: no job has any of the keys {', '.join(keys)}; fedrun --cfg job shows all keys")


def examples(arm: Arm, stages: Sequence[Grid], config: Mapping[str, Any]) -> Iterator[tuple[Values, list[Job]]]:
    """The values of each trial of an arm, and jobs that have them: at the first values of the stages before, and at
    none of them.

    Args:
        arm: without chosen values.
        stages: stages of the search.
        config: configuration of one of its jobs.
    """
    first: Values = ()
    for stage in stages:
        tried = trials([arm], stage, lambda _, key: value_at(config, key, NO_VALUE) is not NO_VALUE)
        for trial in tried:
            yield (
                trial.values,
                [[*arm.overrides, *before, *trial.values, *arm.seeds[0]] for before in dict.fromkeys([first, ()])],
            )
        first += tried[0].values if tried else ()


def with_arguments(stage: Grid, arguments: Iterable[str]) -> Grid:
    """A stage in which values from the command line replace its own."""
    argument_values = {key_of(argument): argument.partition("=")[2] for argument in arguments}
    return {key: argument_values.get(key, value) for key, value in stage.items()}


def trials(arms: Sequence[Arm], stage: Grid, knows: Knows) -> list[Trial]:
    """The trials of a stage: for every arm all combinations of values of the keys that its configuration has.

    A value that is listed twice is tried once, as the same run cannot be computed twice at the same time.
    """
    listed = values(arguments_of(stage), None)
    grid = {key: list({meaning(one): one for one in choices}.values()) for key, choices in listed.items()}
    planned = []
    for arm in arms:
        grids = [choices for key, choices in grid.items() if knows([*arm.overrides, *arm.chosen], key)]
        for tried in product(*grids) if grids else ():
            jobs = tuple([*arm.overrides, *updated(arm.chosen, tried), *seed] for seed in arm.seeds)
            planned.append(Trial(arm, tried, jobs))
    return planned


def updated(chosen: Values, tried: Values) -> Values:
    """Chosen values with those of a later stage, which may try further values of the same key."""
    keys = set(map(key_of, tried))
    return (*(value for value in chosen if key_of(value) not in keys), *tried)


def check_metric(metric: str, task: Task) -> None:
    """Reject a metric of test samples, and one of validation samples that the task does not have.

    Raises:
        InputError: naming the metrics that the task has.
    """
    part, _, name = metric.rpartition("/")
    known = ("loss", *task.measures)
    if part in ("", "test") or (part == "validation" and name not in known):
        allowed = ", ".join(f"validation/{name}" for name in known)
        raise InputError(f"hydra.sweeper.metric={metric}: allowed: {allowed}, or another metric of a run's rows")


def after_stage(arms: Iterable[Arm], tried: Iterable[Trial], outcomes: Sequence[Outcome], metric: str) -> list[Arm]:
    """The arms after a stage, each with its best trial; with none if none is better than those of the stages before.

    Args:
        arms: the arms before the stage.
        tried: the stage's trials.
        outcomes: outcomes of the trials' jobs, in their order.
        metric: metric of the last round, such as ``validation/accuracy``; less is better for a loss, otherwise more.

    Raises:
        InputError: a run does not have the metric.
    """
    rest = iter(outcomes)
    outcomes_of = [(trial, [next(rest) for _ in trial.jobs]) for trial in tried]
    return [_settled(arm, [one for one in outcomes_of if one[0].arm == arm], metric) for arm in arms]


def _settled(arm: Arm, tried: Sequence[tuple[Trial, Sequence[Outcome]]], metric: str) -> Arm:
    """An arm after the trials that a stage made for it."""
    runs = [(one.setting, one.summary) for _, outcomes in tried for one in outcomes if one.summary is not None]
    for _, summary in runs:
        if metric not in summary["final"]:
            raise InputError(
                f"hydra.sweeper.metric={metric}: a run has no such metric; allowed: "
                f"{', '.join(sorted(summary['final']))}"
            )
    if runs:
        setting, summary = runs[-1]
        arm = replace(arm, run=(setting, str(summary["strategy"])))
    sign = -1 if lower_is_better(metric) else 1
    scores = {trial.values: score(outcomes, metric) for trial, outcomes in tried}
    reached = arm.scores.get(arm.chosen, -sign * math.inf)
    arm = replace(arm, scores={**arm.scores, **{updated(arm.chosen, values): mean for values, mean in scores.items()}})
    better = {values: mean for values, mean in scores.items() if sign * mean > sign * reached}
    if not better:
        return arm
    best = max(better, key=lambda values: sign * better[values])
    return replace(arm, chosen=updated(arm.chosen, best))


def score(outcomes: Sequence[Outcome], metric: str) -> float:
    """The mean of a metric over the seeds; NaN if a run failed, did not measure it, or was on other data."""
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    scores = [value for summary in summaries if (value := summary["final"].get(metric)) is not None]
    same_data = len({summary.get("data") for summary in summaries}) <= 1
    return statistics.mean(scores) if same_data and len(scores) == len(outcomes) else math.nan


def at_edge(best: str, tried: Iterable[str]) -> bool:
    """Whether a value is at an end of several of its key: of numbers the least or the largest, of others the first or
    the last.
    """
    grid = list(dict.fromkeys(tried))
    with suppress(ValueError):  # not all of them are numbers
        grid = sorted(grid, key=lambda override: float(override.partition("=")[2]))
    return len(grid) > 1 and best in (grid[0], grid[-1])


def suggestion(arm: Arm, metric: str, command: str, before: Plain) -> str:
    """The chosen values, merged over those of the option that they replace, as an ``hparams`` option's YAML; with all
    trials as comments above it.
    """
    seeds = ", ".join(override.partition("=")[2] for seed in arm.seeds for override in seed)
    over = f"mean over the seeds {seeds}" if seeds else "with the default seed"
    comments = [
        "@package _global_",
        f"{SUGGESTED_BY}{command}",
        f"For: {' '.join(without_implied(arm.overrides)) or 'the default configuration'}",
        f"{wording.name(metric)} after the last round, {over}:",
        *(
            f"  {' '.join(tried)}: {'failed' if math.isnan(mean) else wording.value(metric, mean)}"
            for tried, mean in arm.scores.items()
        ),
    ]
    if arm.edges:
        comments.append(f"At an end of its grid, so that better values may lie beyond: {', '.join(arm.edges)}")
    lines = [f"# {line}" for comment in comments for line in comment.splitlines()]  # a value may have several lines
    merged = OmegaConf.create(before)
    for override in arm.chosen:
        OmegaConf.update(merged, key_of(override), parsed(override).value())
    return "\n".join([*lines, OmegaConf.to_yaml(merged)])


def choice(arm: Arm, metric: str) -> str:
    """What was chosen for an arm, in a line."""
    if not arm.chosen:
        return "nothing chosen, because every trial failed"
    edges = f"; at an end of its grid: {', '.join(arm.edges)}" if arm.edges else ""
    keys = {key_of(value): None for tried in arm.scores for value in tried if value not in arm.chosen}
    left = [key for key in keys if not any(key_of(value) == key for value in arm.chosen)]
    kept = f"; no tried value of {', '.join(left)} was better" if left else ""
    reached = wording.value(metric, arm.scores[arm.chosen])
    return f"{' '.join(arm.chosen)}: {wording.name(metric)} {reached}{edges}{kept}"


def suggest(arms: Sequence[Arm], metric: str, command: str, folder: Path) -> dict[Path, Arm]:
    """Write an option of the group ``hparams`` for every arm that has run: ``SETTING-STRATEGY.yaml``, or
    ``SETTING-STRATEGY.N.yaml`` for each of several arms with the same setting and strategy, of which none is used
    without a choice.

    It replaces the option of this name, so it also has that option's values which were not tuned. Suggestions of an
    earlier search in the same folder are removed, except in the folder of ``--config-dir``.

    Returns:
        The arm of each file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = option_files(HPARAMS)
    by_name: dict[str, list[Arm]] = {}
    for arm in arms:
        if arm.run is not None:
            by_name.setdefault("-".join(arm.run), []).append(arm)
    files: dict[Path, Arm] = {}
    for name, alike in by_name.items():
        before = content(HPARAMS, name, known[name]) if name in known else {}
        for number, arm in enumerate(alike, start=1):
            path = folder / (f"{name}.yaml" if len(alike) == 1 else f"{name}.{number}.yaml")
            with atomic_write(path) as file:
                file.write(suggestion(arm, metric, command, before).encode())
            files[path] = arm
    own = config_dir_option()
    of_user = own is not None and (own / HPARAMS).resolve() == folder.resolve()
    for path in () if of_user else folder.glob("*.yaml"):
        if path not in files and f"\n# {SUGGESTED_BY}" in path.read_text(encoding="utf-8", errors="replace"):
            path.unlink()
    return files
