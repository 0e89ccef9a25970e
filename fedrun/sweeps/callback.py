"""Hydra's callback around a sweep: it checks the jobs before the first one starts, and shows all results at the end."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from fedrun.execution.launched_ranks import launched
from fedrun.runs.folder import CURVES
from fedrun.runs.outcome import OUTCOME, Outcome, outcomes
from fedrun.sweeps.sweep_checks import check_sweep
from fedrun.system.cores import cores
from fedrun.system.errors import FAILED, InputError, RunError, expected_error, show_defect
from fedrun.system.signals import stop_behind

if TYPE_CHECKING:
    from fedrun.report.runs import Run
    from fedrun.report.settings import Setting


def parallel_jobs(launcher: Mapping[str, Any]) -> int:
    """The number of jobs of a sweep that run at once on one machine, from the launcher's settings."""
    jobs = int(launcher.get("jobs", launcher.get("n_jobs", 1)))  # n_jobs: of Hydra's launcher with joblib
    return jobs if jobs > 0 else cores()


def say(line: str, file: TextIO) -> None:
    """Write a line in one piece, because parallel jobs also print; ``print`` writes the line break separately."""
    file.write(f"{line}\n")
    file.flush()


def record_failure(number: int, folder: str | Path, overrides: Sequence[str], why: str) -> None:
    """Write the outcome of a failed job of a sweep, and report it."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    Outcome(tuple(overrides), None, why).save(folder)
    say(f"== {number}: failed: {why}", sys.stderr)


@contextmanager
def ending_process() -> Iterator[None]:
    """End the process at an error in the block: Hydra turns a callback's exception into a warning."""
    try:
        yield
    except Exception as error:  # of every kind: an unexpected one is printed with its traceback
        if (stop := stop_behind(error)) is not None:
            raise stop from None
        if (known := expected_error(error)) is None:
            show_defect(error)
        elif os.environ.get("RANK", "0") == "0":
            print(f"fedrun: {known}", file=sys.stderr, flush=True)
        sys.exit(FAILED if known is None else known.exit_status)


class Sweep(Callback):
    """Hydra's callback around a sweep."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Reject the sweep, with exit status 2 and nothing written, if the configuration of a job is invalid."""
        with ending_process():
            if launched():
                raise InputError("torchrun starts the processes of a single run; start a sweep's runs one by one")
            check_sweep(config)
            for earlier in Path(config.hydra.sweep.dir).glob(f"*/{OUTCOME}"):  # of another sweep in the same folder
                earlier.unlink()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print one table over all jobs and the path of one plot; exit with status 1 if any job failed."""
        folder = Path(config.hydra.sweep.dir)
        with ending_process():
            all_outcomes = outcomes(folder)
            try:
                show(all_outcomes, folder)
            except OSError as error:
                raise RunError(f"{error.filename or folder}: {error.strerror or error}") from error
            if failures := [outcome for outcome in all_outcomes if outcome.error is not None]:
                raise RunError(f"{len(failures)} of {len(all_outcomes)} jobs failed")


def show(all_outcomes: Sequence[Outcome], folder: Path) -> None:
    """Print the table of the complete runs, the path of their plot, and every error with the first job that had it."""
    from rich.console import Console

    from fedrun.report import sweep_table as sweep
    from fedrun.report.settings import settings

    failed_jobs: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in all_outcomes:
        if outcome.error is not None:
            failed_jobs[outcome.error].append(outcome)
    for error, jobs in failed_jobs.items():
        others = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
        print(f"failed: {' '.join(jobs[0].overrides)}{others}: {error}", file=sys.stderr)
    if runs := completed(all_outcomes):
        compared, problems = settings(runs)
        print(flush=True)
        sweep.show(sweep.sweep_table(compared, problems), Console())
        plot(compared, folder / CURVES)
        print(f"\ncurves  {folder / CURVES}")


def completed(all_outcomes: Sequence[Outcome]) -> list[Run]:
    """The complete runs of a sweep; a run whose files cannot be read is reported."""
    from fedrun.report.runs import read

    runs = []
    # the stages of a search may contain the same run
    for folder in dict.fromkeys(one.summary["folder"] for one in all_outcomes if one.summary is not None):
        try:
            run, problem = read(Path(folder))
            if run.complete:
                runs.append(run)
        except InputError as error:  # of a run that was finished earlier
            problem = str(error)
        if problem:
            print(f"fedrun: not in the table: {problem}", file=sys.stderr)
    return runs


def plot(compared: Sequence[Setting], path: Path) -> None:
    """Draw the curves of all settings, each the mean over its seeds."""
    from fedrun.report.quantities import targets
    from fedrun.runs.display.panels import plot_curves

    rows = {setting.name: [run.rows for run in setting.complete] for setting in compared}
    plot_curves(rows, path, targets(run for setting in compared for run in setting.complete))
