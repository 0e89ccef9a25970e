"""One run of a sweep."""

from __future__ import annotations

import logging
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.cli.screen_log import log_to_screen
from fedrun.config.overrides import typed, without_implied
from fedrun.system.errors import InputError, expected_error, one_line
from fedrun.system.signals import stop_behind

if TYPE_CHECKING:
    from omegaconf import DictConfig


def sweep_job(config: DictConfig) -> float | None:
    """A run in a sweep. Its outcome is written to the sweep's folder; an error of the run is part of it and is not
    raised, so that the other jobs continue.

    It returns its last score, such as the accuracy, on the validation samples if there are any; None if it failed: a
    sweeper that searches counts None as a failed trial and goes on, and takes NaN for a score that it cannot use.

    Its lines on the screen begin with its number, because lines of parallel jobs are in any order.
    """
    from hydra.core.hydra_config import HydraConfig

    from fedrun.config.composed import Composed
    from fedrun.data.evaluation_split import pooled_metric, recorded_split
    from fedrun.data.tasks.metric_names import recorded_score
    from fedrun.experiment.experiment import build_experiment
    from fedrun.runs.display import wording
    from fedrun.runs.folder import has_results
    from fedrun.runs.outcome import Outcome
    from fedrun.runs.run import run
    from fedrun.sweeps.callback import parallel_jobs, record_failure, say
    from fedrun.sweeps.sweep_checks import WITHOUT_VALIDATION, check_job, searches

    hydra = HydraConfig.get()
    overrides = without_implied(typed(hydra.overrides.task))
    begin, together = f"== {hydra.job.num}: ", parallel_jobs(hydra.launcher)
    log_to_screen(logging.WARNING, begin)
    try:
        composed = replace(Composed.of(config, hydra), sweep=Path(hydra.sweep.dir).name)
        experiment = build_experiment(composed)
        check_job(experiment)
        if searches(hydra.sweeper) and experiment.validation.evaluation_split == "test":
            raise InputError(WITHOUT_VALIDATION)
        earlier = not experiment.overwrite and has_results(experiment.folder)
        say(f"{begin}{' '.join(overrides) or 'the defaults'}{': finished earlier' if earlier else ''}", sys.stdout)
        summary = run(experiment, parallel_jobs=together)
        final = summary["final"]
        score = recorded_score(final)
        last = pooled_metric(final, score)
        value, rounds = wording.value(score, last), wording.counted(summary["rounds"], "round")
        say(f"{begin}{recorded_split(final)} {wording.name(score)} {value} after {rounds}", sys.stdout)
        Outcome(overrides, summary, None, earlier, composed.setting).save(hydra.runtime.output_dir)
        return None if last is None else float(last)
    except Exception as error:  # a defect in one job is shown in full, and must not end the others
        if (stop := stop_behind(error)) is not None:
            raise stop from None
        known = expected_error(error)
        failure = one_line(str(known or f"{type(error).__name__}: {error}"))
        if known is None:
            traceback.print_exc()
    record_failure(hydra.job.num, hydra.runtime.output_dir, overrides, failure)
    return None
