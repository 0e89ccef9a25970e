"""Find run folders and read their files, complete, unfinished or damaged."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedrun.config.dotted_keys import value_at
from fedrun.data.targets import Target
from fedrun.data.tasks.metric_names import ESTIMATE
from fedrun.experiment.observer import Row, round_of
from fedrun.runs.folder import CONFIG, METRICS, SUMMARY, finished
from fedrun.runs.metrics_file import DamagedRunError, evaluated_rounds, read_rows
from fedrun.runs.outcome import outcome_files, read_outcome
from fedrun.system.errors import InputError
from fedrun.system.yaml_file import read_yaml

SECTIONS = ("evaluation", "validation")
"""Parts of a configuration that a report reads."""

REPORTED = "reported"
"""A metric's key that stands for the accuracy which a run reports: of the global model, clients' own or tuned ones."""

HASH = re.compile("[0-9a-f]{8}")
"""The hash of a configuration, as in the name of the folder above a run's folder."""


@dataclass(frozen=True)
class Run:
    """One run, as its folder describes it.

    Attributes:
        folder: the run's folder.
        config: the composed configuration, plain containers and scalars.
        dataset: the chosen option's name.
        strategy: the chosen option's name.
        rows: the rows of ``metrics.jsonl``; at least one.
        summary: the content of ``summary.json``; None if the run is not complete.
    """

    folder: Path
    config: Mapping[str, Any]
    dataset: str
    strategy: str
    rows: tuple[Row, ...]
    summary: Mapping[str, Any] | None

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def hash(self) -> str | None:
        """The hash of its configuration: by its summary, or else by its path; None: not known."""
        if self.summary is not None and "config_hash" in self.summary:
            return str(self.summary["config_hash"])
        _, strategy, name = named_by_path(self.folder, self.seed) or (None, None, None)
        return name if strategy == self.strategy else None

    @property
    def data(self) -> str | None:
        """The fingerprint of its data; None if the run is not complete."""
        return None if self.summary is None else str(self.summary["data"])

    @property
    def complete(self) -> bool:
        return self.summary is not None

    @property
    def reported(self) -> str | None:
        """The key of the accuracy that it reports, such as ``clients/accuracy_mean``; None if it is not complete,
        reports none, or is of an earlier version.
        """
        return None if self.summary is None else self.summary.get("reported")

    @property
    def tested(self) -> str | None:
        """The model and the samples behind its pooled metrics, in words; None if they are not recorded."""
        return None if self.summary is None else self.summary.get("decisions", {}).get("tested")

    @property
    def max_rounds(self) -> int:
        """The largest number of rounds, by its configuration."""
        return int(self.config["rounds"])

    @property
    def last_round(self) -> int:
        """The last evaluated round; less than ``max_rounds`` if the run reached all its targets."""
        return round_of(self.rows[-1])

    @property
    def adaptive(self) -> bool:
        """Whether evaluations could end early, when they showed that no target was reached."""
        return bool((self.config.get("evaluation") or {}).get("adaptive", False))

    @property
    def on_validation(self) -> bool:
        """Whether it was evaluated on validation samples, to choose settings; such a run is not a result."""
        return bool((self.config.get("validation") or {}).get("share"))

    def shows_target(self, target: Target) -> bool:
        """Whether its evaluations show when it reached a target."""
        if self.on_validation or not self.recorded(target.metric):
            return False
        return not self.adaptive or target in map(Target.of, self.config.get("targets") or ())

    def key_of(self, metric: str) -> str:
        """The key of a metric in its rows, which differs for :data:`REPORTED` only; empty if it reports none."""
        return self.reported or "" if metric == REPORTED else metric

    def recorded(self, metric: str) -> bool:
        """Whether some row has a metric."""
        return any(self.key_of(metric) in row for row in self.rows)

    def draws(self, metric: str) -> bool:
        """Whether some row has a metric, or an estimate of it."""
        return self.recorded(metric) or self.recorded(f"{metric}{ESTIMATE}")

    def rows_with(self, metric: str) -> tuple[Row, ...]:
        """Its rows; those that have :data:`REPORTED`, if this is the metric, have it under this key, too."""
        if metric != REPORTED:
            return self.rows
        key = self.key_of(metric)
        return tuple({**row, REPORTED: row[key]} if key in row else row for row in self.rows)

    def check_target(self, target: Target, interpolated: bool = False) -> None:
        """Check that the evaluations show when the run reached a target.

        Raises:
            InputError: they were for other targets, do not allow interpolation, were not on test samples, or lack the
                target's metric.
        """
        if self.on_validation:
            raise InputError(
                f"{self.folder}: was evaluated on validation samples, and does not show the rounds to "
                f"{target.name}; use a run with validation.share=0"
            )
        if not self.recorded(target.metric):
            raise InputError(f"{self.folder}: has no {target.metric} in any round, as the rounds to {target.name} need")
        if not self.shows_target(target) or (self.adaptive and interpolated):
            raise InputError(
                f"{self.folder}: was evaluated with evaluation.adaptive=true, targets={self.config.get('targets')}, "
                f"which does not show the {'interpolated ' if interpolated else ''}rounds to {target.name}; use a run "
                "with evaluation.adaptive=false"
            )


@dataclass(frozen=True)
class FoundRuns:
    """The result of a search for runs.

    Attributes:
        runs: complete and unfinished ones, in the order of their folders.
        problems: one line for everything that is missing or damaged.
        damaged: the first problem of a run left out because a file cannot be read, or differs from what fedrun wrote;
            empty: none.
    """

    runs: tuple[Run, ...]
    problems: tuple[str, ...]
    damaged: str = ""


def complete_runs(runs: Iterable[Run], names: Collection[str]) -> list[Run]:
    """The complete runs with one of these names, such as ``turbosvm/table2/small``."""
    return [run for run in runs if run.complete and run.config["name"] in names]


Progress = Callable[[int, int], None]
"""Called with the number of steps done so far and the number of all."""


def find(
    places: Sequence[str], names: Set[str] | None = None, progress: Progress = lambda done, total: None
) -> FoundRuns:
    """The runs in and below folders. The files of finished runs are compared with their checksums.

    Args:
        places: folders, or patterns of them with ``*``, ``?`` or ``**``.
        names: only runs of these names, such as ``turbosvm/table2/small``, and only their problems; None: all.
        progress: called before each run is read.
    """
    folders, without_run = _folders(places)
    runs: list[Run] = []
    problems = [str(error) for error in without_run]
    damaged = next((str(error) for error in without_run if isinstance(error, DamagedRunError)), "")
    for number, folder in enumerate(folders):
        progress(number, len(folders))
        try:
            if names is not None and _name(folder) not in {None, *names}:
                continue
            run, remark = read(folder)
        except InputError as error:
            problems.append(f"{error}; the run is left out")
            damaged = damaged or (problems[-1] if isinstance(error, DamagedRunError) else "")
            continue
        runs.append(run)
        if remark:
            problems.append(f"{folder}: {remark}")
    return FoundRuns(tuple(runs), tuple(problems), damaged)


def _name(folder: Path) -> str | None:
    """The name of a run; None if its configuration cannot be read."""
    try:
        return str(read_config(folder / CONFIG)["name"])
    except InputError:
        return None


def _folders(places: Sequence[str]) -> tuple[list[Path], list[InputError]]:
    """The run folders in and below some places, each once, and an error for everything that has none."""
    run_paths: dict[Path, Path] = {}
    problems: list[InputError] = []
    for place in places:
        if not (folders := matches(place)):
            what = "is a file, not a folder" if Path(place).is_file() else "no such folder"
            problems.append(InputError(f"{place}: {what}"))
            continue
        unreadable: list[OSError] = []
        below = run_folders(folders, unreadable.append)
        lost = [
            InputError(f"{error.filename}: cannot be read ({error.strerror}); runs in and below it are left out")
            for error in unreadable
            if Path(error.filename).name != Path(CONFIG).parent.name  # a run's own folder: reported with the run
        ]
        if not below:
            below, failed = runs_of_sweeps(folders)
            lost += failed
        problems += lost
        if not (below or lost):
            problems.append(InputError(f"{place}: holds no run (no {METRICS} and no {SUMMARY})"))
        for folder in below:
            run_paths.setdefault(folder.resolve(), folder)
    return list(run_paths.values()), problems


def matches(place: str) -> list[Path]:
    """The folders that a place names, a folder or a pattern of them, in order.

    Raises:
        InputError: a folder above the place cannot be read.
    """
    try:
        if Path(place).is_dir():  # its name may have characters of a pattern
            return [Path(place)]
        return [folder for folder in map(Path, sorted(glob.glob(place, recursive=True))) if folder.is_dir()]
    except OSError as error:
        raise InputError(f"{place}: cannot be read ({error.strerror})") from None


def run_folders(folders: Iterable[Path], unreadable: Callable[[OSError], None]) -> list[Path]:
    """Every folder in and below these that holds a file of a run, in order, each once.

    A run killed before its first row has neither file, and nothing to report.

    Args:
        folders: the folders to search.
        unreadable: called with the error of each folder whose content cannot be listed; ``rglob`` would skip it.
    """
    return sorted(
        {
            Path(path)
            for folder in folders
            for path, _, files in os.walk(folder, onerror=unreadable)
            if not {METRICS, SUMMARY}.isdisjoint(files)
        }
    )


def runs_of_sweeps(folders: Iterable[Path]) -> tuple[list[Path], list[InputError]]:
    """The run folders, each once, that sweeps in these folders have written, which lie elsewhere; and an error for
    each job without one.

    Their paths are those from the folder in which the sweep was started.
    """
    written: dict[Path, None] = {}
    lost: list[InputError] = []
    for path in [file for folder in folders for file in outcome_files(folder)]:
        try:
            outcome = read_outcome(path)
            if outcome.summary is None:
                lost.append(InputError(f"{path.parent}: its job failed ({outcome.error})"))
            elif (folder := Path(outcome.summary["folder"])).is_dir():
                written[folder] = None
            else:
                lost.append(
                    DamagedRunError(
                        f"{path.parent}: no folder {folder} of its run; start fedrun-report where the sweep was "
                        "started, or restore the folder"
                    )
                )
        except (ValueError, KeyError, TypeError, RecursionError):
            lost.append(DamagedRunError(f"{path}: is not the outcome of a sweep's job; the job's run is left out"))
    return list(written), lost


def read(folder: Path) -> tuple[Run, str]:
    """A run, and a remark about it (empty: none).

    Raises:
        DamagedRunError: a file of the run is damaged, or cannot be read.
        InputError: there are no metrics yet.
    """
    path, remark = folder / METRICS, ""
    summary, rows = finished(folder), read_rows(path)
    if summary is None and not rows:  # it may be about to write its configuration
        raise InputError(f"{path}: holds no evaluated round yet")
    config = read_config(folder / CONFIG)
    if summary is None:
        remark = f"unfinished (round {rows[-1]['round']} of {config['rounds']}); it counts in curves only"
    elif flaw := lacking(evaluated_rounds(rows), summary["rounds"], (config.get("evaluation") or {}).get("every")):
        raise DamagedRunError(f"{path}: is damaged ({flaw}); restore it, or start over with overwrite=true")
    dataset, strategy = chosen_options(folder, config) if summary is None else (summary["dataset"], summary["strategy"])
    return Run(folder, config, dataset, strategy, tuple(rows), summary), remark


def lacking(evaluated: Sequence[int], rounds_made: int, every: int | None) -> str:
    """What a complete run's rows lack; empty if they lack nothing.

    Args:
        evaluated: the rounds of the rows.
        rounds_made: the rounds that the run has made, by its summary.
        every: after how many rounds there is a row; None: not known.
    """
    if not evaluated:
        return "it holds no evaluated round"
    if evaluated[-1] != rounds_made:
        return f"its last round is {evaluated[-1]}, but the run has made {rounds_made}"
    missing = sorted(set(range(0, rounds_made, every)) - set(evaluated)) if every else []
    return f"it lacks round {missing[0]}" if missing else ""


def chosen_options(folder: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """The names of an unfinished run's dataset and strategy: from its path; if the folder was moved, the names of their
    classes.
    """
    if by_path := named_by_path(folder, config["seed"]):
        return by_path[:2]

    targets = (value_at(config, f"{key}._target_") for key in ("dataset", "strategy.server"))
    dataset, strategy = ("?" if target is None else str(target).rpartition(".")[2] for target in targets)
    return dataset, strategy


def named_by_path(folder: Path, seed: int) -> tuple[str, str, str] | None:
    """Dataset, strategy and hash in a path as fedrun writes it, .../dataset/strategy/hash/seed=0; None: none."""
    *_, dataset, strategy, name, last = ("", "", "", *folder.absolute().parts)
    return (dataset, strategy, name) if HASH.fullmatch(name) and last == f"seed={seed}" else None


def read_config(path: Path) -> dict[str, Any]:
    """A run's composed configuration.

    Raises:
        DamagedRunError: the file is missing or cannot be read, is not a configuration, or lacks what every
            configuration has.
    """
    try:
        config = read_yaml(path)
    except FileNotFoundError:
        raise DamagedRunError(f"{path}: is missing; restore it, or start over with overwrite=true") from None
    except OSError as error:
        raise DamagedRunError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise DamagedRunError(f"{path}: is not a YAML file of a configuration") from None
    expected = {"seed": int, "rounds": int, "name": str}
    if not isinstance(config, dict) or not all(type(config.get(key)) is kind for key, kind in expected.items()):
        raise DamagedRunError(f"{path}: is not a run's configuration (needs {', '.join(expected)})")
    if wrong := [key for key in SECTIONS if not isinstance(config.get(key) or {}, dict)]:
        raise DamagedRunError(f"{path}: is not a run's configuration ({wrong[0]} has no keys)")
    every = (config.get("evaluation") or {}).get("every")
    if every is not None and (type(every) is not int or every < 1):
        raise DamagedRunError(f"{path}: is not a run's configuration (evaluation.every is not a number of rounds)")
    targets = config.get("targets") or []
    if not isinstance(targets, list) or not all(type(target) in (int, float, str) for target in targets):
        raise DamagedRunError(f"{path}: is not a run's configuration (targets is not a list of numbers and strings)")
    for target in targets:
        try:
            Target.of(target)
        except InputError as error:
            raise DamagedRunError(f"{path}: is not a run's configuration ({error})") from error
    return {str(key): value for key, value in config.items()}
